// Memory of the stub accelerator: pages of the host that count as the device's, reused in the order of streams.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

namespace stub {

// What memory holds that nobody has written: as any float a NaN, as an integer -1 (unsigned: the greatest).
constexpr int kPoison = 0xFF;

// The allocator of all devices. A block that is freed goes at once to the next taker of the same stream, and is poisoned
// by that stream: whoever reads it from another stream without waiting reads poison.
c10::DeviceAllocator& device_allocator();

// The bytes that a device has; allocating more raises torch.OutOfMemoryError.
size_t total_bytes();

// Host memory that copies may read and write behind the host's back.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace stub
