// Machines that are not here, described as data.
#include "api/capability_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nibble {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

MachineFacts host() {
  MachineFacts machine;
  machine.cpu_name = "a processor";
  machine.cpu.avx2 = machine.cpu.avx512 = true;
  machine.num_processors = 8;
  machine.memory_bytes = std::int64_t{64} << 30;
  machine.available_bytes = std::int64_t{60} << 30;
  machine.driver.error = "libcuda.so.1: cannot open shared object file: No such file or directory";
  machine.nccl.error = machine.driver.error;
  return machine;
}

GpuFacts gpu(const char* name, int major, int minor) {
  return {name, major, minor, 132, std::int64_t{140} << 30};
}

MachineFacts machine_with(std::vector<GpuFacts> gpus) {
  MachineFacts machine = host();
  machine.driver_release = "580.65.06";
  machine.driver = {"/usr/lib/libcuda.so.1", "", 13000, ""};
  machine.nccl = {"/usr/lib/libnccl.so.2", "", 22703, ""};
  machine.gpus = std::move(gpus);
  return machine;
}

BuildFacts cuda_build() {
  BuildFacts build;
  build.has_cuda = true;
  build.cuda_version = 13000;
  build.image_list = "90a-real,100a-real,120a-real";
  build.images = parse_images(build.image_list);
  build.nccl_version = 22703;
  build.flashinfer_version = "0.6.13";
  return build;
}

std::vector<KernelRow> rows() {
  using kernels::Backend;
  using kernels::CpuIsa;
  std::vector<KernelRow> out;
  for (const char* family : {"gemm", "moe"}) {
    out.push_back({family, {.name = "scalar", .backend = Backend::kScalar}});
    out.push_back({family, {.name = "avx512", .backend = Backend::kCpu, .isa = CpuIsa::kAvx512}});
    out.push_back({family, {.name = "amx", .backend = Backend::kCpu, .isa = CpuIsa::kAmxBf16}});
    out.push_back({family, {.name = "cuda", .backend = Backend::kCuda, .min_sm = 90}});
  }
  return out;
}

Capabilities judge(const MachineFacts& machine, const BuildFacts& build = cuda_build()) {
  return evaluate(machine, build, rows());
}

const Capability& item(const Capabilities& found, const char* name) {
  const auto at = std::find_if(found.items.begin(), found.items.end(),
                               [&](const Capability& each) { return each.name == name; });
  static const Capability kNone{.name = "no such item"};
  return at == found.items.end() ? kNone : *at;
}

const KernelCapability& kernel(const Capabilities& found, const char* name) {
  return *std::find_if(found.kernels.begin(), found.kernels.end(),
                       [&](const KernelCapability& each) { return each.name == name; });
}

TEST(Capabilities, AFittingGpuIsUsedAndEverythingIsUsable) {
  const Capabilities found = judge(machine_with({gpu("H200", 9, 0)}));
  EXPECT_EQ(found.backend, "cuda");
  EXPECT_TRUE(found.can_run);
  for (const Capability& each : found.items) {
    EXPECT_TRUE(each.is_usable) << each.name << ": " << each.reason;
    EXPECT_THAT(each.reason, IsEmpty()) << each.name;
  }
  EXPECT_EQ(item(found, "gpu driver").version, "580.65.06, CUDA 13.0");
  EXPECT_EQ(item(found, "gpu driver").place, "/usr/lib/libcuda.so.1");
  EXPECT_EQ(item(found, "gpu 0").version, "9.0");
  EXPECT_EQ(item(found, "nccl").version, "2.27.3");
  EXPECT_TRUE(kernel(found, "cuda").is_runnable);
}

TEST(Capabilities, WithoutAGpuTheCpuRunsAndTheReasonIsNamed) {
  const Capabilities found = judge(host());
  EXPECT_TRUE(found.can_run);
  EXPECT_EQ(found.backend, "cpu");
  EXPECT_THAT(found.explanation, HasSubstr("libcuda.so.1 was not found"));
  EXPECT_FALSE(item(found, "gpu driver").is_usable);
  EXPECT_EQ(kernel(found, "cuda").reason, "no usable GPU");
}

TEST(Capabilities, ABuildWithoutCudaStillNamesTheDriverAndTheGpu) {
  const Capabilities found = judge(machine_with({gpu("H200", 9, 0)}), BuildFacts{});
  EXPECT_EQ(found.backend, "cpu");
  EXPECT_EQ(found.explanation, "driver 580.65.06, CUDA 13.0: this build has no CUDA kernels");
  EXPECT_EQ(item(found, "gpu 0").reason, "this build has no CUDA kernels");
  EXPECT_THAT(item(found, "gpu 0").place, HasSubstr("H200"));
  EXPECT_EQ(item(found, "nccl").version, "2.27.3");
  EXPECT_THAT(item(found, "nccl").reason, HasSubstr("does not use NCCL"));
}

TEST(Capabilities, ADriverOlderThanTheRuntimeIsRefusedWithBothVersions) {
  MachineFacts machine = machine_with({gpu("H200", 9, 0)});
  machine.driver.version = 12040;
  machine.driver_release = "550.54.15";
  const Capabilities found = judge(machine);
  EXPECT_EQ(found.backend, "cpu");
  EXPECT_THAT(item(found, "gpu driver").reason,
              AllOf(HasSubstr("supports CUDA 12.4"), HasSubstr("runtime is CUDA 13.0")));
  EXPECT_THAT(found.explanation, HasSubstr("550.54.15"));
  EXPECT_FALSE(item(found, "gpu 0").is_usable);
}

TEST(Capabilities, AnOlderMinorVersionOfTheDriverIsAWarning) {
  BuildFacts build = cuda_build();
  build.cuda_version = 13010;
  const Capabilities found = judge(machine_with({gpu("H200", 9, 0)}), build);
  EXPECT_EQ(found.backend, "cuda");
  EXPECT_THAT(item(found, "gpu driver").reason, HasSubstr("13.1"));
}

TEST(Capabilities, ABrokenDriverIsAReasonAndNoCrash) {
  MachineFacts machine = machine_with({});
  machine.driver_status = 803;
  EXPECT_THAT(judge(machine).explanation, HasSubstr("error 803"));
  machine = machine_with({});
  machine.driver.missing_part = "cuDeviceTotalMem_v2";
  EXPECT_THAT(judge(machine).explanation, HasSubstr("lacks cuDeviceTotalMem_v2"));
  machine = host();
  machine.driver_release = "580.65.06";
  EXPECT_THAT(judge(machine).explanation, HasSubstr("although kernel module 580.65.06 is loaded"));
  machine.driver.error = "/usr/lib/libcuda.so.1: file too short";
  EXPECT_THAT(judge(machine).explanation, HasSubstr("cannot be opened"));
  EXPECT_EQ(judge(machine_with({})).explanation, "the driver shows no GPU");
}

// Which GPUs start and which are refused, at start and by name. Families: 10.x, 12.x; what no rule
// knows gets the portable rules and a warning, given an image that runs there.
TEST(Capabilities, EveryComputeCapabilityIsDecidedAtStart) {
  struct Case {
    int major, minor;
    const char* images;
    bool is_usable;
    const char* reason;
  };
  const char* exact = "90a-real,100a-real,120a-real";
  const char* families = "90a-real,100f-real,120f-real,90-virtual";
  for (const Case& c : {
           Case{7, 0, exact, false, "want compute capability 9.0"},
           Case{8, 0, exact, false, "want compute capability 9.0"},
           Case{8, 9, exact, false, "want compute capability 9.0"},
           Case{8, 9, "80", false, "want compute capability 9.0"},
           Case{9, 0, exact, true, ""},
           Case{9, 0, "100a-real", false, "no kernel image for 9.0: this build has 100a-real"},
           Case{10, 0, exact, true, ""},
           Case{10, 3, exact, false, "no kernel image for 10.3"},
           Case{10, 3, families, true, ""},
           Case{11, 0, exact, false, "no kernel image for 11.0"},
           Case{11, 0, families, true, "11.0 is not known"},
           Case{12, 0, exact, true, ""},
           Case{12, 1, exact, false, "no kernel image for 12.1"},
           Case{12, 1, families, true, ""},
           Case{13, 0, exact, false, "no kernel image for 13.0"},
           Case{13, 0, families, true, "13.0 is not known"},
       }) {
    BuildFacts build = cuda_build();
    build.image_list = c.images;
    build.images = parse_images(c.images);
    const Capabilities found = judge(machine_with({gpu("GPU", c.major, c.minor)}), build);
    const Capability& decided = item(found, "gpu 0");
    EXPECT_EQ(decided.is_usable, c.is_usable) << c.major << "." << c.minor << " " << c.images;
    EXPECT_THAT(decided.reason, HasSubstr(c.reason));
    EXPECT_EQ(found.backend, c.is_usable ? "cuda" : "cpu");
    if (!c.is_usable) {
      EXPECT_THAT(found.explanation, AllOf(HasSubstr("gpu 0"), HasSubstr(c.reason)));
    }
  }
}

TEST(Capabilities, GpusOfTwoKindsMakeNoGroup) {
  const Capabilities found = judge(machine_with({gpu("H200", 9, 0), gpu("B200", 10, 0)}));
  EXPECT_EQ(found.backend, "cuda");
  EXPECT_TRUE(item(found, "gpu 1").is_usable);
  EXPECT_FALSE(item(found, "gpu group").is_usable);
  EXPECT_THAT(item(found, "gpu group").reason,
              AllOf(HasSubstr("H200 (9.0)"), HasSubstr("gpu 1 is B200 (10.0)")));
  const Capabilities mixed = judge(machine_with({gpu("H200", 9, 0), gpu("V100", 7, 0)}));
  EXPECT_EQ(item(mixed, "gpu group").reason, "gpu 1 is not usable");
  EXPECT_EQ(mixed.backend, "cuda");
  const Capabilities same = judge(machine_with({gpu("H200", 9, 0), gpu("H200", 9, 0)}));
  EXPECT_TRUE(item(same, "gpu group").is_usable);
}

TEST(Capabilities, AGpuThatDoesNotAnswerIsNotUsed) {
  EXPECT_EQ(item(judge(machine_with({GpuFacts{}})), "gpu 0").reason,
            "the driver does not answer about it");
}

TEST(Capabilities, NcclOfAnotherVersionOrWithoutItsPartsIsRefused) {
  MachineFacts machine = machine_with({gpu("H200", 9, 0)});
  const auto reason = [&] { return item(judge(machine), "nccl").reason; };
  machine.nccl.version = 21805;
  EXPECT_THAT(reason(), AllOf(HasSubstr("2.18.5"), HasSubstr("2.27.3")));
  machine.nccl.version = 2804;
  EXPECT_THAT(reason(), HasSubstr("2.8.4"));
  machine.nccl.version = 30101;
  EXPECT_THAT(reason(), HasSubstr("3.1.1"));
  machine.nccl.version = 22800;
  EXPECT_EQ(reason(), "");
  machine.nccl.missing_part = "ncclCommInitRankConfig";
  EXPECT_THAT(reason(), HasSubstr("/usr/lib/libnccl.so.2 lacks ncclCommInitRankConfig"));
  machine.nccl = {};
  EXPECT_THAT(reason(), HasSubstr("libnccl.so.2 was not found"));
  EXPECT_EQ(judge(machine).backend, "cuda");  // one GPU needs none
}

TEST(Capabilities, UnverifiedKernelsArePassedOver) {
  std::vector<KernelRow> kernels = rows();
  for (KernelRow& row : kernels) {
    row.info.verified = row.info.backend != kernels::Backend::kCuda;
  }
  const Capabilities found = evaluate(machine_with({gpu("H200", 9, 0)}), cuda_build(), kernels);
  EXPECT_EQ(found.backend, "cpu");
  EXPECT_EQ(kernel(found, "cuda").reason, "never run on its hardware");
  EXPECT_THAT(found.explanation, HasSubstr("family gemm has no runnable CUDA kernel"));
}

TEST(Capabilities, CpuKernelsSayWhichInstructionsAreMissing) {
  const Capabilities found = judge(host());
  EXPECT_TRUE(kernel(found, "avx512").is_runnable);
  EXPECT_EQ(kernel(found, "amx").reason, "the processor lacks amx_bf16");
  MachineFacts old = host();
  old.cpu = {};
  EXPECT_FALSE(kernel(judge(old), "avx512").is_runnable);
  EXPECT_TRUE(judge(old).can_run);
  EXPECT_THAT(item(judge(old), "cpu").reason, HasSubstr("no AVX2"));
}

TEST(Capabilities, NothingRunsWhenAFamilyHasNoKernelHere) {
  std::vector<KernelRow> kernels = rows();
  std::erase_if(kernels, [](const KernelRow& row) {
    return std::string(row.family) == "moe" && row.info.backend != kernels::Backend::kCuda;
  });
  const Capabilities found = evaluate(host(), cuda_build(), kernels);
  EXPECT_FALSE(found.can_run);
  EXPECT_EQ(found.backend, "");
  EXPECT_EQ(found.explanation, "kernel family moe has no kernel that runs here");
  EXPECT_FALSE(evaluate(host(), cuda_build(), {}).can_run);
}

TEST(Capabilities, AFamilyThatNoForwardPassNeedsDecidesNothing) {
  std::vector<KernelRow> kernels = rows();
  kernels.push_back({"quantize", {.name = "scalar", .backend = kernels::Backend::kScalar}, false});
  EXPECT_EQ(evaluate(machine_with({gpu("H200", 9, 0)}), cuda_build(), kernels).backend, "cuda");
}

TEST(Capabilities, ThisMachineIsProbedWithoutFailure) {
  const Capabilities found = capabilities();
  EXPECT_TRUE(found.can_run) << found.explanation;
  EXPECT_TRUE(item(found, "cpu").is_usable);
  EXPECT_NE(item(found, "memory").version, "0.0 GiB");
  for (const Capability& each : found.items) {
    EXPECT_TRUE(each.is_usable || !each.reason.empty()) << each.name;
  }
}

}  // namespace
}  // namespace nibble
