#include "weights/dtype_names.h"

#include <array>

#include "base/check.h"

namespace nibble::weights {
namespace {

struct Spelling {
  std::string_view text;
  DType dtype;
};
constexpr std::array<Spelling, 13> kSpellings = {{{"F32", DType::kF32},
                                                  {"BF16", DType::kBF16},
                                                  {"F16", DType::kF16},
                                                  {"F8_E4M3", DType::kE4M3},
                                                  {"F8_E8M0", DType::kUE8M0},
                                                  {"F4", DType::kE2M1},
                                                  {"U8", DType::kU8},
                                                  {"I8", DType::kI8},
                                                  {"I16", DType::kI16},
                                                  {"I32", DType::kI32},
                                                  {"I64", DType::kI64},
                                                  {"F64", DType::kF64},
                                                  {"BOOL", DType::kBool}}};

}  // namespace

std::optional<DType> find_dtype(std::string_view spelling) {
  for (const Spelling& row : kSpellings) {
    if (row.text == spelling) {
      return row.dtype;
    }
  }
  return std::nullopt;
}

std::string_view dtype_spelling(DType dtype) {
  for (const Spelling& row : kSpellings) {
    if (row.dtype == dtype) {
      return row.text;
    }
  }
  NIBBLE_CHECK(false, static_cast<int>(dtype));
  return {};
}

}  // namespace nibble::weights
