#include "kernels/convert/fp4_values.h"

using nibble::formats::ValueLayout;

nibble::Status multiply(const nibble::kernels::Fp4Values<ValueLayout::kHopper>& weight);

nibble::Status run(const nibble::kernels::Fp4Values<ValueLayout::kHopper>& tiles,
                   const nibble::kernels::Fp4Values<ValueLayout::kRowMajor>& rows) {
#ifdef NIBBLE_CORRECT
  (void)rows;
  return multiply(tiles);
#else
  (void)tiles;
  return multiply(rows);  // expect: invalid initialization of reference|no known conversion
#endif
}
