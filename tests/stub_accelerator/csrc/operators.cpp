// Every operator that the stub has no kernel for: its shapes come from a meta kernel at once, its values from the host's
// kernel when the stream comes to it.
#include "aliases.h"
#include "queues.h"
#include "streams.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <vector>

namespace stub {

namespace {

using c10::IValue;
using torch::jit::Stack;

// Operators that no meta kernel describes, and how often the host had to wait for them.
struct Synchronous {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
};

Synchronous& synchronous() {
  static auto* found = new Synchronous();
  return *found;
}

std::string name_of(const c10::OperatorHandle& op) {
  return c10::toString(op.operator_name());
}

// Operators that take indices on the host beside tensors on the device.
bool takes_host_indices(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name().name;
  return name.find("index") != std::string::npos;
}

// Applies a function to every tensor in a value; other values stay as they are.
template <typename Function>
IValue with_tensors(const IValue& value, const Function& function) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    return tensor.defined() ? IValue(function(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> found;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      found.push_back(tensor.defined() ? function(tensor) : tensor);
    }
    return found;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> found;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      const bool is_there = tensor.has_value() && tensor->defined();
      found.push_back(is_there ? std::optional<at::Tensor>(function(*tensor)) : tensor);
    }
    return found;
  }
  return value;
}

// Finds the device of a call, and refuses tensors of several, as devices with memory of their own do.
c10::Device device_of(const c10::OperatorHandle& op, const Stack& arguments) {
  std::optional<c10::Device> found;
  std::optional<c10::Device> strange;
  std::optional<c10::Device> named;
  for (const auto& value : arguments) {
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      named = value.toDevice();
    }
    with_tensors(value, [&](const at::Tensor& tensor) {
      if (tensor.is_privateuseone()) {
        if (found.has_value() && tensor.device() != *found) {
          strange = tensor.device();
        }
        found = tensor.device();
      } else if (tensor.dim() > 0 && !takes_host_indices(op)) {
        strange = tensor.device();
      }
      return tensor;
    });
  }
  TORCH_CHECK(
      !found.has_value() || !strange.has_value(),
      "Expected all tensors to be on the same device, but found at least two devices, ",
      strange.value_or(c10::kCPU), " and ", found.value_or(c10::kCPU), "! (", name_of(op), ")");
  c10::Device device = found.value_or(named.value_or(c10::Device(c10::kPrivateUse1)));
  if (!device.has_index()) {
    device.set_index(static_cast<c10::DeviceIndex>(current_device()));
  }
  return device;
}

// Gives an operator that draws a generator of the host, whose seed the device's generator draws now.
void seed_draws(const c10::OperatorHandle& op, Stack& arguments, c10::Device device) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& type = schema[i].type();
    const auto optional = type->cast<c10::OptionalType>();
    const bool draws = (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::GeneratorType;
    if (!draws) {
      continue;
    }
    at::Generator generator = arguments[i].isNone()
        ? at::detail::getPrivateUse1Hooks().getDefaultGenerator(device.index())
        : arguments[i].toGenerator();
    TORCH_CHECK(
        generator.device().is_privateuseone(),
        "Expected a 'stub' device type for generator but found '", generator.device(), "'");
    std::lock_guard<std::mutex> lock(generator.mutex());
    arguments[i] = at::detail::createCPUGenerator(generator.get<at::CPUGeneratorImpl>()->random64());
  }
}

Stack on_meta(const Stack& arguments) {
  Stack found;
  for (const auto& value : arguments) {
    if (value.isDevice()) {
      found.emplace_back(c10::Device(c10::kMeta));
    } else if (value.isGenerator()) {
      found.emplace_back();
    } else {
      found.push_back(with_tensors(value, [](const at::Tensor& tensor) {
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
          return tensor;  // a number of Python, whose value such a kernel may want
        }
        return at::empty_strided(
            tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.dtype()).device(c10::kMeta));
      }));
    }
  }
  return found;
}

Stack on_host(const Stack& arguments) {
  Stack found;
  for (const auto& value : arguments) {
    if (value.isDevice()) {
      found.emplace_back(c10::Device(c10::kCPU));
    } else {
      found.push_back(with_tensors(value, [](const at::Tensor& tensor) {
        if (tensor.is_privateuseone()) {
          return host_alias(tensor);
        }
        // The caller may change it before the stream comes to it.
        auto copy = tensor.clone();
        keep_wrapped(tensor, copy);
        return copy;
      }));
    }
  }
  return found;
}

bool is_written(const c10::AliasInfo* alias) {
  return alias != nullptr && alias->isWrite();
}

// Tells whether all that a call returns are new tensors, or those that it writes to.
bool returns_tensors(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    const bool is_tensor = result.type()->isSubtypeOf(*c10::TensorType::get()) ||
        result.type()->isSubtypeOf(*c10::ListType::ofTensors());
    if (!is_tensor || (result.alias_info() != nullptr && !result.alias_info()->isWrite())) {
      return false;
    }
  }
  return true;
}

// Tells whether an output of a variant with out= is there to be resized.
bool has_empty_output(const c10::OperatorHandle& op, const Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool is_output = op.schema().arguments()[i].is_out();
    if (is_output && (!arguments[i].isTensor() || arguments[i].toTensor().numel() == 0)) {
      return true;
    }
  }
  return false;
}

// Tells whether a call only writes to tensors that have their sizes already: those need no meta kernel.
bool only_writes(const c10::OperatorHandle& op, const Stack& arguments) {
  for (const auto& result : op.schema().returns()) {
    if (!is_written(result.alias_info())) {
      return false;
    }
  }
  return !has_empty_output(op, arguments);
}

// Resizes what the call writes to, where the meta kernel did.
void resize_written(const c10::OperatorHandle& op, const Stack& arguments, const Stack& meta) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(op.schema().arguments()[i].alias_info()) || !arguments[i].isTensor()) {
      continue;
    }
    const auto& tensor = arguments[i].toTensor();
    const auto& wanted = meta[i].toTensor();
    if (tensor.sizes() != wanted.sizes()) {
      tensor.resize_(wanted.sizes());
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(wanted.sizes(), wanted.strides());
    }
  }
}

size_t argument_written_as(const c10::OperatorHandle& op, const c10::AliasInfo& alias) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i].alias_info()) &&
        arguments[i].alias_info()->beforeSets() == alias.beforeSets()) {
      return i;
    }
  }
  TORCH_CHECK(false, "no argument of ", name_of(op), " is what it returns");
}

at::Tensor like(const at::Tensor& meta, c10::Device device) {
  const auto options = at::TensorOptions().dtype(meta.dtype()).device(device);
  return at::empty_strided(meta.sizes(), meta.strides(), options);
}

// Returns what the call returns now: what it writes to, or new memory in the shapes that the meta kernel gave.
Stack results_now(
    const c10::OperatorHandle& op, const Stack& arguments, const Stack& meta, c10::Device device) {
  Stack found;
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    if (is_written(returns[i].alias_info())) {
      found.push_back(arguments[argument_written_as(op, *returns[i].alias_info())]);
    } else {
      found.push_back(with_tensors(meta[i], [&](const at::Tensor& tensor) { return like(tensor, device); }));
    }
  }
  return found;
}

void copy_result(const IValue& target, const IValue& source, const std::string& name) {
  auto copy = [&](const at::Tensor& to, const at::Tensor& from) {
    if (to.defined()) {
      TORCH_CHECK(
          to.sizes() == from.sizes() && to.dtype() == from.dtype(),
          name, " gave ", from.sizes(), " of ", from.dtype(), " where its meta kernel says ", to.sizes(),
          " of ", to.dtype());
      to.copy_(from);
    }
  };
  if (target.isTensor()) {
    copy(target.toTensor(), source.toTensor());
  } else if (target.isTensorList()) {
    const auto to = target.toTensorVector();
    const auto from = source.toTensorVector();
    for (size_t i = 0; i < to.size(); ++i) {
      copy(to[i], from.at(i));
    }
  }
}

void submit(const c10::OperatorHandle& op, const Stack& arguments, const Stack& results, c10::Device device) {
  Stack targets;
  const auto& returns = op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    targets.push_back(is_written(returns[i].alias_info()) ? IValue() : on_host({results[i]}).front());
  }
  auto& stream = queue(device.index(), current_stream(device.index()));
  stream.submit([op, inputs = on_host(arguments), targets = std::move(targets)] {
    BelowAutograd guard;
    Stack stack = inputs;
    op.callBoxed(&stack);
    for (size_t i = 0; i < targets.size(); ++i) {
      copy_result(targets[i], stack.at(i), name_of(op));
    }
  });
}

void run_now(const c10::OperatorHandle& op, Stack* stack, c10::Device device) {
  {
    std::lock_guard<std::mutex> lock(synchronous().mutex);
    ++synchronous().calls[name_of(op)];
  }
  finish(device.index());
  const size_t count = op.schema().arguments().size();
  const Stack arguments(stack->end() - static_cast<int64_t>(count), stack->end());
  if (!returns_tensors(op) || has_empty_output(op, arguments)) {
    at::native::cpu_fallback(op, stack);
    return;
  }
  BelowAutograd guard;
  Stack found = on_host(arguments);
  op.callBoxed(&found);
  const Stack results = results_now(op, arguments, found, device);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_written(op.schema().returns()[i].alias_info())) {
      copy_result(on_host({results[i]}).front(), found[i], name_of(op));
    }
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
}

void run(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Stack arguments(stack->end() - static_cast<int64_t>(count), stack->end());
  const c10::Device device = device_of(op, arguments);
  const c10::DeviceGuard guard(device);
  touch();
  throw_failure();
  seed_draws(op, arguments, device);
  torch::jit::drop(*stack, count);
  if (only_writes(op, arguments)) {
    const Stack results = results_now(op, arguments, {}, device);
    submit(op, arguments, results, device);
    stack->insert(stack->end(), results.begin(), results.end());
    return;
  }
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta) && returns_tensors(op)) {
    Stack meta = on_meta(arguments);
    const Stack shaped = meta;
    bool told = true;
    try {
      BelowAutograd below;
      op.callBoxed(&meta);
    } catch (...) {
      // It says nothing of this call, or the call is wrong, which the host's kernel says better.
      told = false;
    }
    if (told) {
      resize_written(op, arguments, shaped);
      const Stack results = results_now(op, arguments, meta, device);
      submit(op, arguments, results, device);
      stack->insert(stack->end(), results.begin(), results.end());
      return;
    }
  }
  stack->insert(stack->end(), arguments.begin(), arguments.end());
  run_now(op, stack, device);
}

std::vector<std::string> synchronous_operators() {
  std::lock_guard<std::mutex> lock(synchronous().mutex);
  std::vector<std::string> found;
  for (const auto& [name, calls] : synchronous().calls) {
    found.push_back(name + " " + std::to_string(calls));
  }
  return found;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}

TORCH_LIBRARY_FRAGMENT(stub, library) {
  library.def("synchronous_operators() -> str[]", synchronous_operators);
}

}  // namespace stub
