#include "api/build_facts.h"

#include <charconv>

#ifndef NIBBLE_BUILD_CUDA_ARCHITECTURES
#error "the build defines NIBBLE_BUILD_CUDA_ARCHITECTURES and NIBBLE_BUILD_CUDA_VERSION"
#endif

namespace nibble {
namespace {

void append_images(std::string_view name, std::vector<GpuImage>& images) {
  const bool is_real = name.ends_with("-real");
  const bool is_virtual = name.ends_with("-virtual");
  name = name.substr(0, name.find('-'));
  int number = 0;
  const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), number);
  const std::string_view suffix(end, name.data() + name.size() - end);
  if (fault != std::errc() || number < 10 || (suffix != "" && suffix != "a" && suffix != "f")) {
    return;
  }
  GpuImage image{number / 10, number % 10, GpuImage::Kind::kMajor};
  if (suffix == "a") {
    image.kind = GpuImage::Kind::kExact;
  } else if (suffix == "f") {
    image.kind = GpuImage::Kind::kFamily;
  }
  if (!is_virtual) {
    images.push_back(image);
  }
  // PTX of an exact architecture runs nowhere else, so it adds nothing.
  if (!is_real && suffix.empty()) {
    image.kind = GpuImage::Kind::kPtx;
    images.push_back(image);
  }
}

}  // namespace

std::vector<GpuImage> parse_images(std::string_view list) {
  std::vector<GpuImage> images;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    append_images(list.substr(0, comma), images);
    list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
  }
  return images;
}

bool runs(const GpuImage& image, int major, int minor) {
  switch (image.kind) {
    case GpuImage::Kind::kExact: return major == image.major && minor == image.minor;
    case GpuImage::Kind::kFamily:
    case GpuImage::Kind::kMajor: return major == image.major && minor >= image.minor;
    case GpuImage::Kind::kPtx:
      return major > image.major || (major == image.major && minor >= image.minor);
  }
  return false;
}

BuildFacts build_facts() {
  BuildFacts facts;
  facts.image_list = NIBBLE_BUILD_CUDA_ARCHITECTURES;
  facts.has_cuda = !facts.image_list.empty();
  facts.cuda_version = NIBBLE_BUILD_CUDA_VERSION;
  facts.images = parse_images(facts.image_list);
  return facts;
}

}  // namespace nibble
