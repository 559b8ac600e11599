#include "unit/kernels/quantize_cases.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace nibble::kernels {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  template <typename T>
  T next() {
    T value{};
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> next(std::size_t count) {
    std::vector<T> values(count);
    if (count > 0) {
      std::memcpy(values.data(), take(count * sizeof(T)), count * sizeof(T));
    }
    return values;
  }
  bool is_at_end() const { return at_ == bytes_.size(); }

 private:
  const char* take(std::size_t count) {
    if (bytes_.size() - at_ < count) {
      std::abort();  // the checksum manifest says so more kindly
    }
    at_ += count;
    return bytes_.data() + at_ - count;
  }
  std::vector<char> bytes_;
  std::size_t at_ = 0;
};

QuantizeInput read_input(Reader& reader) {
  QuantizeInput input;
  const DType dtypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  input.dtype = dtypes[reader.next<std::int32_t>()];
  input.num_experts = reader.next<std::int32_t>();
  input.rows = reader.next<std::int32_t>();
  input.cols = reader.next<std::int32_t>();
  const std::size_t width = dtype_bits(input.dtype) / 8;
  const std::size_t matrix = std::size_t(input.rows) * input.cols;
  input.row_major = reader.next<std::byte>(input.num_experts * matrix * width);
  input.column_major.resize(input.row_major.size());
  for (std::size_t i = 0; i < input.num_experts * matrix; ++i) {
    const std::size_t row = i % matrix / input.cols;
    const std::size_t col = i % input.cols;
    const std::size_t to = i / matrix * matrix + col * input.rows + row;
    std::memcpy(&input.column_major[to * width], &input.row_major[i * width], width);
  }
  return input;
}

QuantizeCase read_case(Reader& reader, const std::vector<QuantizeInput>& inputs) {
  QuantizeCase one;
  one.input = &inputs[reader.next<std::int32_t>()];
  one.options.format = static_cast<QuantFormat>(reader.next<std::int32_t>());
  one.options.rounding = static_cast<formats::ScaleRounding>(reader.next<std::int32_t>());
  one.options.scale_layout = static_cast<formats::ScaleLayout>(reader.next<std::int32_t>());
  one.options.order = static_cast<MatrixOrder>(reader.next<std::int32_t>());
  one.options.global_scale = static_cast<GlobalScale>(reader.next<std::int32_t>());
  one.options.has_global_scale_per_expert = reader.next<std::int32_t>() != 0;
  one.options.row_multiple = reader.next<std::int32_t>();
  one.options.col_multiple = reader.next<std::int32_t>();
  const auto num_global_scales = reader.next<std::int32_t>();
  one.global_scales = reader.next<float>(num_global_scales);
  const QuantizedExtent extent = quantized_extent(one.args()).value();
  one.values = reader.next<std::uint8_t>(extent.value_bytes * one.input->num_experts);
  one.scales = reader.next<std::uint8_t>(extent.scale_bytes * one.input->num_experts);
  one.report.num_nan = reader.next<std::int64_t>();
  one.report.num_inf = reader.next<std::int64_t>();
  one.report.first_non_finite = reader.next<std::int64_t>();
  one.report.num_poisoned_blocks = reader.next<std::int64_t>();
  one.report.num_saturated = reader.next<std::int64_t>();
  one.report.num_zeroed_blocks = reader.next<std::int64_t>();
  one.out_hash = reader.next<std::uint64_t>();
  return one;
}

QuantizeGolden read_golden() {
  Reader reader(std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/quantize/cases.bin");
  QuantizeGolden golden;
  const auto num_inputs = reader.next<std::uint32_t>();
  golden.inputs.reserve(num_inputs);
  for (std::uint32_t i = 0; i < num_inputs; ++i) {
    golden.inputs.push_back(read_input(reader));
  }
  const auto num_cases = reader.next<std::uint32_t>();
  for (std::uint32_t i = 0; i < num_cases; ++i) {
    golden.cases.push_back(read_case(reader, golden.inputs));
    golden.cases.back().number = static_cast<std::int32_t>(i);
  }
  if (!reader.is_at_end()) {
    std::abort();
  }
  return golden;
}

}  // namespace

QuantizeArgs QuantizeCase::args() const {
  QuantizeArgs args;
  args.x = options.order == MatrixOrder::kRowMajor ? input->row_major.data()
                                                   : input->column_major.data();
  args.num_experts = input->num_experts;
  args.rows = input->rows;
  args.cols = input->cols;
  args.dtype = input->dtype;
  args.options = options;
  return args;
}

const QuantizeGolden& quantize_golden() {
  static const QuantizeGolden kGolden = read_golden();
  return kGolden;
}

std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const float value : values) {
    const std::uint32_t bits =
        std::isnan(value) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) {
      hash = (hash ^ (bits >> (8 * byte) & 0xFFU)) * 0x100000001B3U;
    }
  }
  return hash;
}

}  // namespace nibble::kernels
