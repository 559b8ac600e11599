// What was compiled into this program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

// Machine code, or PTX, for one GPU architecture.
struct GpuImage {
  enum class Kind : std::uint8_t {
    kExact,   // "90a": that compute capability only
    kFamily,  // "100f": the same major number from that minor number on
    kMajor,   // "90": likewise
    kPtx,     // "90-virtual": that capability and every newer one, compiled by the driver
  };
  int major = 0;
  int minor = 0;
  Kind kind = Kind::kExact;
};

struct BuildFacts {
  bool has_cuda = false;
  int cuda_version = 0;  // of the linked runtime: 13000 is 13.0
  std::vector<GpuImage> images;
  std::string image_list;          // as given to the build: "90a-real, 100a-real"
  int nccl_version = 0;            // compiled against; 22703 is 2.27.3; 0: not used
  std::string flashinfer_version;  // empty: not used
};

// This program.
BuildFacts build_facts();

// CMake's list of architectures, separated by commas: "90a-real,100f-real,80". A name without
// "-real" or "-virtual" stands for both. What has another form is left out.
std::vector<GpuImage> parse_images(std::string_view list);

// True when the device can run code of the image.
bool runs(const GpuImage& image, int major, int minor);

}  // namespace nibble
