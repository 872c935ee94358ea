// What torch asks a backend for: devices, streams and events (the guard), generators and pinned memory (the hooks).
#include "memory.h"
#include "queues.h"
#include "streams.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <map>
#include <vector>

namespace stub {

namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;

thread_local int device_of_thread = 0;
thread_local std::array<int64_t, kMaxDevices> stream_of_thread{};

void require_device(int device) {
  TORCH_CHECK(
      device >= 0 && device < device_count(), "invalid device ordinal: ", device, " of ", device_count());
}

c10::Stream as_stream(int device, int64_t id) {
  return c10::Stream(
      c10::Stream::UNSAFE, c10::Device(kType, static_cast<c10::DeviceIndex>(device)), id);
}

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : device_of_thread;
}

struct Event {
  std::shared_ptr<Mark> mark;
  bool timed;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kType;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, static_cast<c10::DeviceIndex>(exchange_device(index_of(device)))};
  }
  c10::Device getDevice() const override {
    return {kType, static_cast<c10::DeviceIndex>(device_of_thread)};
  }
  void setDevice(c10::Device device) const override {
    exchange_device(index_of(device));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    device_of_thread = index_of(device);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    return {};
  }

  c10::Stream getStream(c10::Device device) const override {
    return as_stream(index_of(device), current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return as_stream(index_of(device), 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return as_stream(index_of(device), new_stream(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*urgent*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return as_stream(
        stream.device_index(), exchange_stream(stream.device_index(), stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &queue(stream.device_index(), stream.id());
  }
  bool queryStream(const c10::Stream& stream) const override {
    return queue(stream.device_index(), stream.id()).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    finish(queue(stream.device_index(), stream.id()));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    finish(device < 0 ? device_of_thread : device);
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    device_allocator().recordStream(pointer, stream);
  }

  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex /*device*/,
      const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new Event{nullptr, flag == c10::EventFlag::BACKEND_DEFAULT};
    }
    static_cast<Event*>(*event)->mark = queue(stream.device_index(), stream.id()).mark();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      queue(stream.device_index(), stream.id()).wait_for(static_cast<Event*>(event)->mark);
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<Event*>(event)->mark->reached();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      WithoutInterpreter guard;
      static_cast<Event*>(event)->mark->wait();
    }
    throw_failure();
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex /*device*/) const override {
    TORCH_CHECK(first != nullptr && second != nullptr, "Both events must be recorded before calculating elapsed time.");
    auto *begin = static_cast<Event*>(first), *end = static_cast<Event*>(second);
    TORCH_CHECK(begin->timed && end->timed, "Events were created without argument 'enable_timing=True'");
    TORCH_CHECK(begin->mark->reached() && end->mark->reached(), "Both events must be completed before calculating elapsed time.");
    return static_cast<double>(end->mark->time_ns() - begin->mark->time_ns()) * 1e-6;
  }
};

// Draws on the host in the order of calls; each operator is given a seed of its own, so that its work may run later.
struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(int device) {
    device_ = c10::Device(kType, static_cast<c10::DeviceIndex>(device));
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override {
    return touched();
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    exchange_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(device_of_thread);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator();
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static std::mutex mutex;
    static auto* generators = new std::map<int, at::Generator>();
    std::lock_guard<std::mutex> lock(mutex);
    const int index = device < 0 ? device_of_thread : device;
    require_device(index);
    auto [found, is_new] = generators->try_emplace(index);
    if (is_new) {
      found->second = at::make_generator<Generator>(index);
    }
    return found->second;
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? device_of_thread : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const int device = storage.device().index();
    const int before = exchange_device(device);
    c10::DataPtr grown = device_allocator().allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) {
      device_allocator().copy_data(grown.get(), storage.data(), kept);
    }
    exchange_device(before);
    storage.set_data_ptr_noswap(std::move(grown));
    storage.set_nbytes(bytes);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

const bool registered = [] {
  c10::SetAllocator(kType, &device_allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

}  // namespace

int current_device() {
  return device_of_thread;
}

int exchange_device(int device) {
  require_device(device);
  return std::exchange(device_of_thread, device);
}

int64_t current_stream(int device) {
  return stream_of_thread.at(device);
}

int64_t exchange_stream(int device, int64_t stream) {
  return std::exchange(stream_of_thread.at(device), stream);
}

}  // namespace stub
