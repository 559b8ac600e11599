// Rows of bf16 weights times one vector. A slot of the ring holds up to four rows; a row goes to
// four warps, each with a quarter of the columns, whose part of the vector stays in registers. The
// products are matrix instructions of which only the diagonal counts: two for a piece of two rows
// instead of 64 other instructions.
//
// Sums: fp32 in the order of the matrix instructions, pieces ascending, lanes by halves, quarters
// in order: fixed by the number of columns.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/common/ptx_cp_async.cuh"
#include "kernels/common/ptx_mma.cuh"
#include "kernels/decode/device/decode_params.cuh"

namespace nibble::kernels::device {

// A lane's part of a quarter of the columns, in pieces of eight.
class DenseInput {
 public:
  __device__ __forceinline__ void load(const uint4* x, int cols, int thread) {
    const int pieces = cols / 8;
    const int quarter = thread / 32 % DecodeConfig::kQuarters;
    lane_ = thread % 32;
    first_ = pieces * quarter / DecodeConfig::kQuarters + lane_;
    left_ = pieces * (quarter + 1) / DecodeConfig::kQuarters - first_;
    read(x, x_);
  }
  __device__ __forceinline__ int lane() const { return lane_; }

  // Pieces of the same columns of a row.
  template <int kPieces>
  __device__ __forceinline__ void read(const void* row, uint4 (&out)[kPieces]) const {
    const uint4* pieces = static_cast<const uint4*>(row) + first_;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      out[i] = 32 * i < left_ ? pieces[32 * i] : make_uint4(0, 0, 0, 0);
    }
  }

  // Two rows. A row's pieces stand as eight rows of the matrix instruction and the same pieces of
  // the vector as its eight columns. What counts is the diagonal.
  template <int kPieces>
  __device__ __forceinline__ void multiply(const uint4 (&first)[kPieces],
                                           const uint4 (&second)[kPieces], float (&sums)[4]) const {
    float others[4] = {};
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const std::uint32_t low[4] = {first[i].x, second[i].x, first[i].y, second[i].y};
      const std::uint32_t high[4] = {first[i].z, second[i].z, first[i].w, second[i].w};
      mma_m16n8k16_bf16(sums, low, x_[i].x, x_[i].y);
      mma_m16n8k16_bf16(others, high, x_[i].z, x_[i].w);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += others[i];
    }
  }

  // Sums of four rows over the warp: lane t has row t's. The diagonal is in lanes 4 g + g / 2.
  __device__ __forceinline__ float sum_diagonals(const float (&low)[4],
                                                 const float (&high)[4]) const {
    const int group = lane_ / 4;
    const bool is_odd = group % 2 == 1;
    const float rows[4] = {is_odd ? low[1] : low[0], is_odd ? low[3] : low[2],
                           is_odd ? high[1] : high[0], is_odd ? high[3] : high[2]};
    float sum = 0.0F;
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      const float value = __shfl_sync(0xFFFFFFFFU, rows[row], 4 * group + group / 2);
      sum = lane_ % 4 == row ? value : sum;
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    }
    return sum;
  }

 private:
  int lane_ = 0;
  int first_ = 0;  // of the lane
  int left_ = 0;   // from there to the quarter's end
  uint4 x_[DecodeConfig::kMaxPieces] = {};
};

// Up to kRows rows of a slot of kPieces a lane.
template <int kRows, int kPieces>
__device__ __forceinline__ float multiply_slot(const DenseInput& x, int cols, int count,
                                               DecodeShared& shared, const RingPlace& place) {
  const unsigned char* from = shared.ring[place.index];
  uint4 pieces[kRows][kPieces];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    // Past the last row: the same again, dropped.
    x.read(from + min(row, count - 1) * cols * 2, pieces[row]);
  }
  leave_slot(shared, place, x.lane() == 0, DecodeConfig::kSlotArrivals / DecodeConfig::kQuarters);
  float low[4] = {};
  float high[4] = {};
  x.multiply(pieces[0], pieces[1], low);
  x.multiply(pieces[2], pieces[kRows - 1], high);
  return x.sum_diagonals(low, high);
}

// Rows [begin, end) of this block, at most kGroupRows: sums of quarters into `out`. Four warps take
// a slot, so that three slots are multiplied at once.
__device__ __forceinline__ void multiply_group(const DenseInput& x, int cols, DecodeRange rows,
                                               int warp, DecodeShared& shared, RingPlace& place,
                                               float (*out)[DecodeConfig::kQuarters]) {
  const int at_once = rows_of_slot(cols);
  const int quarter = warp % DecodeConfig::kQuarters;
  // By place in the ring: what a group skips never comes back to it as another's slot, of which it
  // could not tell this round's phase from the last.
  const auto group = static_cast<std::uint32_t>(warp / DecodeConfig::kQuarters);
#pragma unroll 1
  for (int first = rows.begin; first < rows.end; first += at_once, place.next()) {
    if (place.index % DecodeConfig::kDenseGroups != group) {
      continue;
    }
    const int count = min(at_once, rows.end - first);
    wait_full(shared, place);
    const float sum = at_once == 4 ? multiply_slot<4, 3>(x, cols, count, shared, place)
                                   : multiply_slot<3, 4>(x, cols, count, shared, place);
    if (x.lane() < count) {
      out[first - rows.begin + x.lane()][quarter] = sum;
    }
  }
}

// store(place in the group, row, sum) for each of this block's rows, each by one thread. x lies in
// shared.products.x. By then everything asked for with cp_async is there.
template <typename Store>
__device__ __forceinline__ void multiply_rows(int cols, DecodeRange rows, DecodeShared& shared,
                                              RingPlace& place, const Store& store) {
  const int thread = thread_index();
  DenseInput x;
  x.load(shared.products.x, cols, thread);
  const int at_once = rows_of_slot(cols);
  const int group_rows = DecodeConfig::kGroupRows / at_once * at_once;
  int buffer = 0;  // groups take turns, so that one barrier a group is enough
#pragma unroll 1
  for (int first = rows.begin; first < rows.end; first += group_rows) {
    const DecodeRange group{first, min(first + group_rows, rows.end)};
    float(*sums)[DecodeConfig::kQuarters] = shared.products.rows[buffer];
    multiply_group(x, cols, group, thread / 32, shared, place, sums);
    cp_async_wait_group<0>();  // what the caller asked for
    sync_multiplying();
    const int row = first + thread;
    if (row < group.end) {
      const float* parts = sums[thread];
      store(thread, row, ((parts[0] + parts[1]) + parts[2]) + parts[3]);
    }
    buffer ^= 1;
  }
}

}  // namespace nibble::kernels::device
