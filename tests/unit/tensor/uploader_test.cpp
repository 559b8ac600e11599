#include "tensor/uploader.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/thread_pool.h"
#include "support/host_device.h"

namespace nibble {
namespace {

std::vector<std::uint8_t> numbered(std::size_t bytes) {
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13U);
  }
  return out;
}

TEST(Uploader, CopiesEveryByteOfArraysBelowAtAndAboveItsPieces) {
  testing_support::HostDevice device(1 << 30);
  ThreadPool pool(3);
  {
    Result<Uploader> uploader = Uploader::create(device, &pool);
    ASSERT_TRUE(uploader.has_value());
    std::int64_t total = 0;
    for (const std::size_t bytes : {0U, 1U, 4097U, 16U << 20U, (16U << 20U) + 1U, 90U << 20U}) {
      const std::vector<std::uint8_t> from = numbered(bytes);
      std::vector<std::uint8_t> to(bytes + 1, 0xAA);
      ASSERT_TRUE(uploader->copy(to.data(), from.data(), static_cast<std::int64_t>(bytes)).ok());
      ASSERT_TRUE(uploader->finish().ok());
      EXPECT_EQ(to.back(), 0xAA);
      to.pop_back();
      EXPECT_TRUE(to == from) << bytes;
      total += static_cast<std::int64_t>(bytes);
    }
    EXPECT_EQ(uploader->bytes(), total);
    EXPECT_GT(device.num_event_waits, 0);  // no piece is overwritten before it was sent
  }
  EXPECT_EQ(device.num_live, 0);
}

}  // namespace
}  // namespace nibble
