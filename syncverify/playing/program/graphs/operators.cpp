// The product of a parameter and a constant, in two forms: a torch::autograd::Function, and
// an operator with a kernel below autograd.

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Saves its constant as a tensor, and its factor in saved_data, which holds other values.
struct Product : public Function<Product> {
  // Tells compiled autograd and the JIT that backward consists of plain operators.
  static constexpr bool is_traceable = true;

  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& local, const at::Tensor& constant) {
    ctx->save_for_backward({constant});
    ctx->saved_data["factor"] = 2.0;
    return local * constant;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const double factor = ctx->saved_data["factor"].toDouble();
    at::Tensor of_local, of_constant;
    if (ctx->needs_input_grad(0)) {
      // Times two and divided by two: exact in binary floating point.
      of_local = gradients[0] * factor * ctx->get_saved_variables()[0] / factor;
    }
    TORCH_CHECK(!ctx->needs_input_grad(1), "constants need no gradient");
    return {of_local, of_constant};
  }
};

at::Tensor product(const at::Tensor& local, const at::Tensor& constant) {
  return Product::apply(local, constant);
}

at::Tensor kernel(const at::Tensor& local, const at::Tensor& constant) {
  return local * constant;
}

at::Tensor dispatch(const at::Tensor& local, const at::Tensor& constant) {
  static auto found = c10::Dispatcher::singleton()
                          .findSchemaOrThrow("syncverify_graphs::kernel", "")
                          .typed<decltype(kernel)>();
  return found.call(local, constant);
}

// Calls the kernel below autograd, with a backward written by hand.
struct Kernel : public Function<Kernel> {
  static at::Tensor forward(
      AutogradContext* ctx, const at::Tensor& local, const at::Tensor& constant) {
    ctx->save_for_backward({constant});
    at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch(local, constant);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {dispatch(gradients[0], ctx->get_saved_variables()[0]), at::Tensor()};
  }
};

at::Tensor kernel_autograd(const at::Tensor& local, const at::Tensor& constant) {
  return Kernel::apply(local, constant);
}

TORCH_LIBRARY(syncverify_graphs, library) {
  library.def("product(Tensor local, Tensor constant) -> Tensor");
  library.def("kernel(Tensor local, Tensor constant) -> Tensor");
}

// Autograd differentiates the operators that `product` calls.
TORCH_LIBRARY_IMPL(syncverify_graphs, CompositeImplicitAutograd, library) {
  library.impl("product", product);
}

// One kernel for all devices.
TORCH_LIBRARY_IMPL(syncverify_graphs, CompositeExplicitAutograd, library) {
  library.impl("kernel", kernel);
}

TORCH_LIBRARY_IMPL(syncverify_graphs, Autograd, library) {
  library.impl("kernel", kernel_autograd);
}
