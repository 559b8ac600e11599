#include "kernels/probe/device_probe.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "formats/bf16.h"
#include "kernels/random/random_fill.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<DeviceProbeArgs> row;
#include "kernels/device_probe_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

constexpr std::size_t kRuns = 5;
constexpr std::int64_t kOperandBytes = std::int64_t{64} << 10U;
// Of 64 products of 64 x 256 x 16 in each of two groups: 20 ms at 900 TFLOP/s on 132 processors.
constexpr std::int32_t kRounds = 1000;

std::span<const Instance<DeviceProbeArgs>> instances() {
  // An array must not be empty.
  static const std::vector<Instance<DeviceProbeArgs>> kInstances = {
#define NIBBLE_INSTANCE(row) row,
#include "kernels/device_probe_instances.inc"
#undef NIBBLE_INSTANCE
  };
  return kInstances;
}

// Memory, stream and events of one measurement.
class Probe {
 public:
  static Result<Probe> create(Device& device, std::int64_t bytes) {
    Probe out;
    out.device_ = &device;
    NIBBLE_ASSIGN_OR_RETURN(out.stream_, device.make_stream());
    NIBBLE_ASSIGN_OR_RETURN(out.data_, device.allocate(bytes));
    NIBBLE_ASSIGN_OR_RETURN(out.result_, device.allocate(sizeof(std::uint32_t)));
    NIBBLE_ASSIGN_OR_RETURN(out.begin_, device.make_event());
    NIBBLE_ASSIGN_OR_RETURN(out.end_, device.make_event());
    return out;
  }

  Exec exec() const { return {.stream = stream_.get(), .device = &device_->facts()}; }
  std::byte* data() const { return data_.data(); }

  // Work a second.
  Result<double> rate(DeviceProbeArgs args) {
    double work = 0.0;
    args.data = data_.data();
    args.result = reinterpret_cast<std::uint32_t*>(result_.data());
    args.work = &work;
    std::array<double, kRuns> rates{};
    for (std::size_t run = 0; run <= kRuns; ++run) {
      NIBBLE_RETURN_IF_ERROR(device_->fill(result_.data(), 0, result_.bytes(), stream_.get()));
      NIBBLE_RETURN_IF_ERROR(device_->record(begin_, stream_.get()));
      NIBBLE_RETURN_IF_ERROR(run_best("device_probe", instances(), args, exec()));
      NIBBLE_RETURN_IF_ERROR(device_->record(end_, stream_.get()));
      NIBBLE_RETURN_IF_ERROR(device_->wait(end_));
      NIBBLE_ASSIGN_OR_RETURN(const double us, device_->elapsed_us(begin_, end_));
      if (run > 0) {
        rates[run - 1] = work / us * 1e6;
      }
    }
    std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
    return rates[kRuns / 2];
  }

 private:
  Device* device_ = nullptr;
  Device::OwnedStream stream_;
  Device::Memory data_;
  Device::Memory result_;
  Device::Event begin_;
  Device::Event end_;
};

}  // namespace

std::span<const Instance<DeviceProbeArgs>> device_probe_instances() { return instances(); }

Result<double> device_read_bandwidth(Device& device, std::int64_t bytes) {
  const std::int64_t whole = bytes / 16 * 16;
  NIBBLE_ASSIGN_OR_RETURN(Probe probe, Probe::create(device, whole));
  NIBBLE_RETURN_IF_ERROR(
      random_fill({.out = probe.data(), .bytes = whole, .key = 1}, probe.exec()));
  return probe.rate({.limit = DeviceLimit::kRead, .bytes = whole});
}

Result<double> device_bf16_peak(Device& device) {
  NIBBLE_ASSIGN_OR_RETURN(Probe probe, Probe::create(device, kOperandBytes));
  std::array<formats::Bf16, kRandomQuantiles> quantiles;  // even in [-1, 1)
  for (std::size_t i = 0; i < quantiles.size(); ++i) {
    quantiles[i] = formats::f32_to_bf16(static_cast<float>(i) / 2048.0F - 1.0F);
  }
  NIBBLE_RETURN_IF_ERROR(random_fill({.out = probe.data(),
                                      .bytes = kOperandBytes,
                                      .key = 1,
                                      .form = RandomForm::kBf16,
                                      .quantiles = quantiles.data()},
                                     probe.exec()));
  return probe.rate(
      {.limit = DeviceLimit::kBf16Products, .bytes = kOperandBytes, .rounds = kRounds});
}

}  // namespace nibble::kernels
