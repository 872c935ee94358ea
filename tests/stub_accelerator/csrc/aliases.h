// Tensors of the host over the memory of others: what a queue computes on.
#pragma once

#include <ATen/Tensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

namespace stub {

using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// A Python number stays one: it does not take part in the choice of a result's type.
inline void keep_wrapped(const at::Tensor& from, const at::Tensor& to) {
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) {
    to.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
}

// Returns a tensor of the host over the same memory, which it does not keep alive: memory goes in the order of streams.
inline at::Tensor raw_alias(const at::Tensor& tensor) {
  auto alias = at::from_blob(
      const_cast<void*>(tensor.const_data_ptr()),
      tensor.sizes(),
      tensor.strides(),
      at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU));
  keep_wrapped(tensor, alias);
  return alias;
}

inline at::Tensor host_alias(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_privateuseone(), "a tensor of the stub is expected, not of ", tensor.device());
  return raw_alias(tensor);
}

}  // namespace stub
