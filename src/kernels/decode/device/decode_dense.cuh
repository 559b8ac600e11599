// Rows of bf16 weights times one vector. A slot of the ring holds up to four rows; a row goes to
// four warps, each with a quarter of the columns, whose part of the vector stays in registers.
//
// Sums: a lane's products by piece and column, lanes by halves, quarters in order: fixed by the
// number of columns.
#pragma once

#include "kernels/common/element.cuh"
#include "kernels/decode/device/decode_params.cuh"

namespace nibble::kernels::device {

// A lane's part of a quarter of the columns, in pieces of eight.
class DenseInput {
 public:
  __device__ __forceinline__ void load(const uint4* x, int cols) {
    const int pieces = cols / 8;
    const int thread = thread_index();
    const int quarter = thread / 32 % DecodeConfig::kQuarters;
    begin_ = pieces * quarter / DecodeConfig::kQuarters;
    first_ = begin_ + thread % 32;
    end_ = pieces * (quarter + 1) / DecodeConfig::kQuarters;
#pragma unroll
    for (int i = 0; i < DecodeConfig::kMaxPieces; ++i) {
      const uint4 piece = first_ + 32 * i < end_ ? x[first_ + 32 * i] : make_uint4(0, 0, 0, 0);
      widen(piece, x_[i]);
    }
  }

  // Pieces of the same columns of a row in shared memory.
  __device__ __forceinline__ void read(const unsigned char* row,
                                       uint4 (&out)[DecodeConfig::kMaxPieces]) const {
    const uint4* pieces = reinterpret_cast<const uint4*>(row);
#pragma unroll
    for (int i = 0; i < DecodeConfig::kMaxPieces; ++i) {
      out[i] = first_ + 32 * i < end_ ? pieces[first_ + 32 * i] : make_uint4(0, 0, 0, 0);
    }
  }

  // Of the lane's columns.
  __device__ __forceinline__ float dot(const uint4 (&row)[DecodeConfig::kMaxPieces]) const {
    float sums[DecodeConfig::kMaxPieces] = {};
#pragma unroll
    for (int i = 0; i < DecodeConfig::kMaxPieces; ++i) {
      if (begin_ + 32 * i < end_) {  // the same for the warp
        float w[8];
        widen(row[i], w);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          sums[i] = fmaf(w[j], x_[i][j], sums[i]);
        }
      }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

 private:
  static __device__ __forceinline__ void widen(const uint4& piece, float (&out)[8]) {
    const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = low_bf16(words[i]);
      out[2 * i + 1] = high_bf16(words[i]);
    }
  }

  int begin_ = 0;  // of the quarter
  int first_ = 0;  // of the lane
  int end_ = 0;
  float x_[DecodeConfig::kMaxPieces][8] = {};
};

// Rows [begin, end) of this block, at most kGroupRows: sums of quarters into `out`. Four warps take
// a slot, so that three slots are multiplied at once and a warp has several rows in flight.
__device__ __forceinline__ void multiply_group(const DenseInput& x, int cols, DecodeRange rows,
                                               DecodeShared& shared, RingPlace& place,
                                               float (*out)[DecodeConfig::kQuarters]) {
  const int at_once = rows_of_slot(cols);
  const int warp = thread_index() / 32;
  const bool is_first_lane = thread_index() % 32 == 0;
  const int quarter = warp % DecodeConfig::kQuarters;
  // By place in the ring: what a group skips never comes back to it as another's slot, of which it
  // could not tell this round's phase from the last.
  const auto group = static_cast<std::uint32_t>(warp / DecodeConfig::kQuarters);
  for (int first = rows.begin; first < rows.end; first += at_once, place.next()) {
    if (place.index % DecodeConfig::kDenseGroups != group) {
      continue;
    }
    const int count = min(at_once, rows.end - first);
    const unsigned char* from = shared.ring[place.index];
    wait_full(shared, place);
    for (int row = 0; row < count; row += 2) {
      uint4 pieces[2][DecodeConfig::kMaxPieces];
      x.read(from + row * cols * 2, pieces[0]);
      // Past the last row: the same again, dropped.
      x.read(from + min(row + 1, count - 1) * cols * 2, pieces[1]);
      if (row + 2 >= count) {
        leave_slot(shared, place, is_first_lane,
                   DecodeConfig::kSlotArrivals / DecodeConfig::kQuarters);
      }
      const float sum = warp_sum(x.dot(pieces[0]));
      const float next = warp_sum(x.dot(pieces[1]));
      if (is_first_lane) {
        out[first - rows.begin + row][quarter] = sum;
        if (row + 1 < count) {
          out[first - rows.begin + row + 1][quarter] = next;
        }
      }
    }
  }
}

// store(place in the group, row, sum) for each of this block's rows, each by one thread. x lies in
// shared.products.x.
template <typename Store>
__device__ __forceinline__ void multiply_rows(int cols, DecodeRange rows, DecodeShared& shared,
                                              RingPlace& place, const Store& store) {
  DenseInput x;
  x.load(shared.products.x, cols);
  const int at_once = rows_of_slot(cols);
  const int group_rows = DecodeConfig::kGroupRows / at_once * at_once;
  const int thread = thread_index();
  int buffer = 0;  // groups take turns, so that one barrier a group is enough
  for (int first = rows.begin; first < rows.end; first += group_rows) {
    const DecodeRange group{first, min(first + group_rows, rows.end)};
    float(*sums)[DecodeConfig::kQuarters] = shared.products.rows[buffer];
    multiply_group(x, cols, group, shared, place, sums);
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
