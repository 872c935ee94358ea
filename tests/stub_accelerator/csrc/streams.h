// The current device and the current stream of each thread.
#pragma once

#include <cstdint>

namespace stub {

int current_device();
int exchange_device(int device);
int64_t current_stream(int device);
int64_t exchange_stream(int device, int64_t stream);

}  // namespace stub
