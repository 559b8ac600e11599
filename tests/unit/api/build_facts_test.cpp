#include "api/build_facts.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nibble {
namespace {

bool any_runs(const char* list, int major, int minor) {
  const std::vector<GpuImage> images = parse_images(list);
  return std::any_of(images.begin(), images.end(),
                     [&](const GpuImage& image) { return runs(image, major, minor); });
}

TEST(GpuImage, RunsWhereTheArchitectureListAllows) {
  struct Case {
    const char* list;
    int major, minor;
    bool runs;
  };
  for (const Case& c : {
           Case{"90a-real", 9, 0, true},     // exact
           Case{"90a-real", 9, 1, false},    //
           Case{"90a-real", 10, 0, false},   //
           Case{"90a", 10, 0, false},        // its PTX runs nowhere else
           Case{"80-real", 8, 9, true},      // same major, newer minor
           Case{"89-real", 8, 6, false},     // older minor
           Case{"80-real", 9, 0, false},     // machine code does not cross major numbers
           Case{"80", 9, 0, true},           // its PTX does
           Case{"80-virtual", 12, 1, true},  //
           Case{"90-virtual", 8, 9, false},  // never backwards
           Case{"100f-real", 10, 3, true},   // family
           Case{"103f-real", 10, 0, false},  //
           Case{"100f-real", 12, 0, false},  //
           Case{"100a-real", 10, 3, false},  // exact again
           Case{"120a-real", 12, 1, false},  //
           Case{"90a-real,100a-real,120a-real", 12, 0, true},
           Case{"", 9, 0, false},
       }) {
    EXPECT_EQ(any_runs(c.list, c.major, c.minor), c.runs)
        << c.list << " on " << c.major << "." << c.minor;
  }
}

TEST(GpuImage, NamesOfAnotherFormAreLeftOut) {
  EXPECT_TRUE(parse_images("native").empty());
  EXPECT_TRUE(parse_images("all-major").empty());
  EXPECT_TRUE(parse_images("9").empty());
  EXPECT_TRUE(parse_images("90x-real").empty());
  EXPECT_EQ(parse_images("native,90a-real").size(), 1U);
}

TEST(BuildFacts, DescribeThisProgram) {
  const BuildFacts facts = build_facts();
  EXPECT_EQ(facts.has_cuda, !facts.images.empty());
  EXPECT_EQ(facts.has_cuda, facts.cuda_version > 0);
}

}  // namespace
}  // namespace nibble
