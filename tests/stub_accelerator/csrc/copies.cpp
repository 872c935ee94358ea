// Memory and views of tensors, copies between host and devices, and what Python asks of the stub itself.
#include "aliases.h"
#include "memory.h"
#include "queues.h"
#include "streams.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <chrono>
#include <cstring>
#include <map>
#include <thread>

namespace stub {

namespace {

Queue& current_queue(const at::Tensor& tensor) {
  const int device = tensor.device().index();
  return queue(device, current_stream(device));
}

void require_plain(
    std::optional<c10::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::Layout::Strided, "the stub has no sparse tensors");
  TORCH_CHECK(!c10::pinned_memory_or_default(pinned), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(
    c10::IntArrayRef size,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pinned,
    std::optional<c10::MemoryFormat> format) {
  require_plain(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(
      size,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype),
      format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pinned) {
  require_plain(layout, pinned);
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_strided_generic(
      size,
      stride,
      &device_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(
    const at::Tensor& self, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  if (self.sizes() != size) {
    auto* impl = self.unsafeGetTensorImpl();
    impl->set_sizes_contiguous(size);
    const size_t needed = at::detail::computeStorageNbytesContiguous(
        size, self.dtype().itemsize(), self.storage_offset());
    if (needed > self.storage().nbytes()) {
      at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), needed);
    }
  }
  if (format.has_value()) {
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_source(
    at::Tensor& self,
    c10::Storage source,
    int64_t offset,
    c10::IntArrayRef size,
    c10::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return self;
}

at::Tensor& set_source_storage(at::Tensor& self, c10::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source(self, std::move(source), 0, {count}, {1});
}

at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_source(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

void submit_copy(Queue& queue, at::Tensor target, at::Tensor source, c10::Storage held) {
  queue.submit([target = std::move(target), source = std::move(source), held = std::move(held)]() {
    BelowAutograd guard;
    target.copy_(source);
  });
}

void copy_from_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  auto& queue = current_queue(target);
  if (!non_blocking) {
    submit_copy(queue, host_alias(target), source, {});
    finish(queue);
  } else if (is_pinned(source.data_ptr())) {
    submit_copy(queue, host_alias(target), raw_alias(source), source.storage());
  } else {
    // Staged, as pageable memory is: the caller may change it at once.
    submit_copy(queue, host_alias(target), source.clone(), {});
  }
}

void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  auto& queue = current_queue(source);
  if (!non_blocking) {
    submit_copy(queue, target, host_alias(source), {});
    finish(queue);
    return;
  }
  if (target.is_non_overlapping_and_dense()) {
    // Whoever reads before the copy was made finds this.
    std::memset(target.data_ptr(), kPoison, target.nbytes());
  }
  submit_copy(queue, raw_alias(target), host_alias(source), target.storage());
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0) {
    return target;
  }
  if (self.is_cpu()) {
    copy_from_host(self, target, non_blocking);
  } else if (target.is_cpu()) {
    copy_to_host(self, target, non_blocking);
  } else {
    if (self.device() != target.device()) {
      current_queue(target).wait_for(current_queue(self).mark());
    }
    submit_copy(current_queue(target), host_alias(target), host_alias(self), {});
    if (self.device() != target.device()) {
      current_queue(self).wait_for(current_queue(target).mark());
    }
  }
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (target.is_privateuseone()) {
    resize_(target, self.sizes(), std::nullopt);
  } else {
    target.resize_(self.sizes());
  }
  return copy_from(self, target, false);
}

c10::Scalar local_scalar(const at::Tensor& self) {
  finish(current_queue(self));
  return at::_local_scalar_dense(host_alias(self));
}

at::Tensor as_strided(
    const at::Tensor& self,
    c10::IntArrayRef size,
    c10::IntArrayRef stride,
    std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

// Marks that Python reaches: a collective's end, for which streams wait.
struct HostMarks {
  std::mutex mutex;
  std::map<int64_t, std::shared_ptr<Mark>> all;
  int64_t last = 0;
};

HostMarks& host_marks() {
  static auto* found = new HostMarks();
  return *found;
}

int64_t new_mark() {
  std::lock_guard<std::mutex> lock(host_marks().mutex);
  const int64_t number = ++host_marks().last;
  host_marks().all[number] = std::make_shared<Mark>();
  return number;
}

// Returns a mark that is not reached yet, or nothing.
std::shared_ptr<Mark> host_mark(int64_t number) {
  std::lock_guard<std::mutex> lock(host_marks().mutex);
  auto found = host_marks().all.find(number);
  return found == host_marks().all.end() ? nullptr : found->second;
}

void reach_mark(int64_t number) {
  if (auto mark = host_mark(number)) {
    mark->reach();
    std::lock_guard<std::mutex> lock(host_marks().mutex);
    host_marks().all.erase(number);
  }
}

void wait_for_mark(int64_t number) {
  if (auto mark = host_mark(number)) {
    const int device = current_device();
    queue(device, current_stream(device)).wait_for(mark);
  }
}

void sleep(int64_t cycles) {
  const int device = current_device();
  queue(device, current_stream(device)).submit([cycles] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(cycles));
  });
}

at::Generator default_generator(int64_t device) {
  return at::detail::getPrivateUse1Hooks().getDefaultGenerator(static_cast<c10::DeviceIndex>(device));
}

void manual_seed(int64_t device, int64_t seed) {
  default_generator(device).set_current_seed(static_cast<uint64_t>(seed));
}

at::Tensor get_rng_state(int64_t device) {
  return default_generator(device).get_state();
}

void set_rng_state(int64_t device, at::Tensor state) {
  default_generator(device).set_state(state);
}

void fail_with(std::string message) {
  try {
    TORCH_CHECK(false, message);
  } catch (...) {
    fail(std::current_exception());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage", set_source_storage);
  library.impl("set_.source_Storage_storage_offset", set_source);
  library.impl("set_.source_Tensor", set_source_tensor);
  library.impl("as_strided", as_strided);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("record_stream", record_stream);
}

TORCH_LIBRARY(stub, library) {
  library.def("host_view(Tensor(a) tensor) -> Tensor(a)", host_alias);
  library.def("new_mark() -> int", new_mark);
  library.def("reach_mark(int mark) -> ()", reach_mark);
  library.def("wait_for_mark(int mark) -> ()", wait_for_mark);
  library.def("manual_seed(int device, int seed) -> ()", manual_seed);
  library.def("get_rng_state(int device) -> Tensor", get_rng_state);
  library.def("set_rng_state(int device, Tensor state) -> ()", set_rng_state);
  library.def("sleep(int cycles) -> ()", sleep);
  library.def("fail(str message) -> ()", fail_with);
  library.def("throw_failure() -> ()", throw_failure);
  library.def("in_bad_fork() -> bool", in_bad_fork);
  library.def("touched() -> bool", touched);
  library.def("touch() -> ()", touch);
  library.def("device_count() -> int", [] { return static_cast<int64_t>(device_count()); });
  library.def("total_bytes() -> int", [] { return static_cast<int64_t>(total_bytes()); });
}

}  // namespace stub
