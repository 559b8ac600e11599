#include "tensor/device_errors.h"

#include "base/error.h"

namespace nibble {

Status device_call_failed(std::string_view what, const char* text, int code) {
  return error(Code::kDevice, "CUDA, {}: {} ({})", what, text, code);
}

Status device_memory_exhausted(const DeviceFacts& facts, std::int64_t want_bytes,
                               std::int64_t free_bytes) {
  return error(Code::kExhausted, "{} ({}): want {} bytes, {} of {} are free", facts.name,
               facts.index, want_bytes, free_bytes, facts.memory_bytes);
}

Status device_not_usable(const char* text) {
  return error(Code::kUnsupported, "no GPU can be used: {}", text);
}

Status device_not_there(int index, int count) {
  return error(Code::kUnsupported, "GPU {} wanted, {} found", index, count);
}

Status device_without_code(const DeviceFacts& facts) {
  return error(Code::kUnsupported,
               "{} ({}): has compute capability {}.{}, for which this build has no code",
               facts.name, facts.index, facts.sm / 10, facts.sm % 10);
}

}  // namespace nibble
