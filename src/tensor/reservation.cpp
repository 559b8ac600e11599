#include "tensor/reservation.h"

#include <sys/mman.h>

#include "base/error.h"

namespace nibble {

void Reservation::Unmap::operator()(std::byte* data) const {
  (void)::munmap(data, static_cast<std::size_t>(bytes));
}

Result<Reservation> Reservation::take(std::int64_t bytes) {
  void* const data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return error(Code::kExhausted, "want {} bytes of address space, found too few", bytes);
  }
  Reservation out;
  out.data_ = {static_cast<std::byte*>(data), Unmap{bytes}};
  return out;
}

Status Reservation::make_writable() {
  const auto size = static_cast<std::size_t>(bytes());
  if (::mprotect(data(), size, PROT_READ | PROT_WRITE) != 0) {
    return error(Code::kExhausted, "want {} bytes of memory, found too few", bytes());
  }
  (void)::madvise(data(), size, MADV_HUGEPAGE);  // advice only
  return {};
}

}  // namespace nibble
