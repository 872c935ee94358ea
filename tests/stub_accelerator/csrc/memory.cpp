#include "memory.h"

#include "queues.h"
#include "streams.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <unordered_map>
#include <vector>

namespace stub {

namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kTotal = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

struct Block {
  void* pointer;
  size_t bytes;
  int device;
  int64_t stream;
  // Other streams that use the block until it is freed.
  std::vector<int64_t> users;
};

using Pool = std::map<std::pair<int64_t, size_t>, std::vector<Block*>>;

struct Memory {
  std::mutex mutex;
  std::unordered_map<void*, Block*> live;
  std::map<int, Pool> pools;
  std::map<int, c10::CachingDeviceAllocator::DeviceStats> stats;
};

Memory& memory() {
  static auto* found = new Memory();
  return *found;
}

size_t rounded(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Gives the blocks of a device that nobody uses back to the host; its queues are empty.
void drop_cached(int device) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto& stats = memory().stats[device];
  for (auto& [place, blocks] : memory().pools[device]) {
    for (Block* block : blocks) {
      stats.reserved_bytes[kTotal].decrease(block->bytes);
      std::free(block->pointer);
      delete block;
    }
  }
  memory().pools[device].clear();
}

Block* cached(int device, int64_t stream, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  auto& blocks = memory().pools[device][{stream, bytes}];
  if (blocks.empty()) {
    return nullptr;
  }
  Block* block = blocks.back();
  blocks.pop_back();
  return block;
}

bool has_room(int device, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  return memory().stats[device].reserved_bytes[kTotal].current + bytes <= total_bytes();
}

Block* fresh(int device, int64_t stream, size_t bytes) {
  if (!has_room(device, bytes)) {
    finish(device);
    drop_cached(device);
  }
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      has_room(device, bytes),
      "stub out of memory. Tried to allocate ", bytes, " bytes on a device of ", total_bytes(), " bytes.");
  void* pointer = std::aligned_alloc(kAlignment, bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, pointer != nullptr, "stub out of memory: the host has none left.");
  std::memset(pointer, kPoison, bytes);
  std::lock_guard<std::mutex> lock(memory().mutex);
  memory().stats[device].reserved_bytes[kTotal].increase(bytes);
  return new Block{pointer, bytes, device, stream, {}};
}

void to_pool(Block* block) {
  block->users.clear();
  std::lock_guard<std::mutex> lock(memory().mutex);
  memory().pools[block->device][{block->stream, block->bytes}].push_back(block);
}

void release(void* pointer) {
  Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(memory().mutex);
    auto found = memory().live.find(pointer);
    if (found == memory().live.end()) {
      return;
    }
    block = found->second;
    memory().live.erase(found);
    memory().stats[block->device].allocated_bytes[kTotal].decrease(block->bytes);
  }
  if (in_bad_fork()) {
    return;
  }
  auto& own = queue(block->device, block->stream);
  auto poison = [block] { std::memset(block->pointer, kPoison, block->bytes); };
  if (block->users.empty()) {
    own.submit_always(poison);
    to_pool(block);
    return;
  }
  for (int64_t user : block->users) {
    own.wait_for(queue(block->device, user).mark());
  }
  own.submit_always([block, poison] {
    poison();
    to_pool(block);
  });
}

struct StubAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    touch();
    const int device = current_device();
    const c10::Device place(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) {
      return {nullptr, nullptr, &release, place};
    }
    const int64_t stream = current_stream(device);
    Block* block = cached(device, stream, rounded(bytes));
    if (block == nullptr) {
      block = fresh(device, stream, rounded(bytes));
    }
    std::lock_guard<std::mutex> lock(memory().mutex);
    memory().live[block->pointer] = block;
    memory().stats[device].allocated_bytes[kTotal].increase(block->bytes);
    return {block->pointer, block->pointer, &release, place};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* target, const void* source, std::size_t count) const override {
    const int device = current_device();
    queue(device, current_stream(device)).submit([=] { std::memcpy(target, source, count); });
  }

  bool initialized() override {
    return touched();
  }

  void emptyCache(c10::MempoolId_t /*pool*/) override {
    const int device = current_device();
    finish(device);
    drop_cached(device);
  }

  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    std::lock_guard<std::mutex> lock(memory().mutex);
    auto found = memory().live.find(pointer.get());
    if (found != memory().live.end() && stream.id() != found->second->stream) {
      found->second->users.push_back(stream.id());
    }
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory().mutex);
    return memory().stats[device];
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory().mutex);
    memory().stats[device].allocated_bytes[kTotal].reset_accumulated();
    memory().stats[device].reserved_bytes[kTotal].reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory().mutex);
    memory().stats[device].allocated_bytes[kTotal].reset_peak();
    memory().stats[device].reserved_bytes[kTotal].reset_peak();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory().mutex);
    const auto used = memory().stats[device].reserved_bytes[kTotal].current;
    return {total_bytes() - static_cast<size_t>(used), total_bytes()};
  }
};

struct Pinned {
  std::mutex mutex;
  std::map<const char*, size_t> ranges;
};

Pinned& pinned() {
  static auto* found = new Pinned();
  return *found;
}

void release_pinned(void* pointer) {
  // A queue may still copy from it or to it.
  if (!in_bad_fork() && touched()) {
    for (int device = 0; device < device_count(); ++device) {
      finish(device);
    }
  }
  std::lock_guard<std::mutex> lock(pinned().mutex);
  pinned().ranges.erase(static_cast<const char*>(pointer));
  std::free(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = rounded(bytes == 0 ? 1 : bytes);
    void* pointer = std::aligned_alloc(kAlignment, size);
    TORCH_CHECK_WITH(OutOfMemoryError, pointer != nullptr, "no host memory left to pin");
    std::lock_guard<std::mutex> lock(pinned().mutex);
    pinned().ranges[static_cast<const char*>(pointer)] = size;
    return {pointer, pointer, &release_pinned, c10::DeviceType::CPU};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release_pinned;
  }

  void copy_data(void* target, const void* source, std::size_t count) const override {
    std::memcpy(target, source, count);
  }
};

}  // namespace

size_t total_bytes() {
  static const size_t total = [] {
    const char* text = std::getenv("STUB_ACCELERATOR_MEMORY_BYTES");
    return text == nullptr ? size_t{2} << 30 : std::strtoull(text, nullptr, 10);
  }();
  return total;
}

c10::DeviceAllocator& device_allocator() {
  static auto* found = new StubAllocator();
  return *found;
}

c10::Allocator& pinned_allocator() {
  static auto* found = new PinnedAllocator();
  return *found;
}

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(pinned().mutex);
  const auto* place = static_cast<const char*>(pointer);
  auto after = pinned().ranges.upper_bound(place);
  if (after == pinned().ranges.begin()) {
    return false;
  }
  --after;
  return place < after->first + after->second;
}

}  // namespace stub
