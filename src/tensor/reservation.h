// Addresses with no memory behind them until asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nibble/status.h"

namespace nibble {

class Reservation {
 public:
  // `bytes` above 0. Touching them before make_writable() ends the program. kExhausted: no address
  // space.
  static Result<Reservation> take(std::int64_t bytes);

  std::byte* data() const { return data_.get(); }  // page-aligned
  std::int64_t bytes() const { return data_.get_deleter().bytes; }
  // Memory comes with the first touch, zeroed. kExhausted: the system promises no more.
  Status make_writable();

 private:
  struct Unmap {
    std::int64_t bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
};

}  // namespace nibble
