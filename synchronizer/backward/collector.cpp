// The hook of a gradient in C++, see `collector.py`. The lock of Python's interpreter guards
// all of it.

#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace {

// The place of a gradient: its bucket, the view into the buffer, and the tensor for `.grad`.
struct Place {
  size_t bucket;
  at::Tensor local;
  at::Tensor gradient;
};

class Collector {
 public:
  explicit Collector(py::object count) : count_(std::move(count)) {}

  void set_places(std::vector<size_t> buckets, std::vector<at::Tensor> locals,
                  std::vector<at::Tensor> gradients) {
    stop();
    places_.clear();
    for (size_t i = 0; i < buckets.size(); ++i)
      places_.push_back({buckets[i], locals[i], gradients[i]});
  }

  void start(int backward, std::vector<int64_t> missing, bool takes_over) {
    backward_ = backward;
    missing_ = std::move(missing);
    takes_over_ = takes_over;
  }

  void stop() {
    backward_ = -1;
    arrived_.clear();
  }

  std::vector<size_t> take() { return std::exchange(arrived_, {}); }

  void note(size_t number, at::Tensor& parameter) {
    if (collects(number, parameter)) return;
    count_(number);
    if (backward_ != -1) --missing_[places_[number].bucket];  // as `count_` may have begun one
  }

 private:
  bool collects(size_t number, at::Tensor& parameter) {
    if (backward_ == -1 || torch::autograd::get_current_graph_task_id() != backward_)
      return false;
    Place& place = places_[number];
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined() || missing_[place.bucket] <= 1) return false;
    if (takes_over_) take_over(place, gradient);
    arrived_.push_back(number);
    --missing_[place.bucket];
    return true;
  }

  // Copies a gradient that fits into its view, which becomes `.grad`; leaves others to Python.
  static void take_over(Place& place, at::Tensor& gradient) {
    bool fits = !gradient.is_same(place.gradient) && !gradient.requires_grad() &&
        place.gradient.data_ptr() == place.local.data_ptr() &&  // module.to() moves it
        !gradient.key_set().has(c10::DispatchKey::Python) &&
        gradient.layout() == at::kStrided && gradient.device() == place.local.device() &&
        gradient.scalar_type() == place.local.scalar_type() &&
        gradient.sizes() == place.local.sizes();
    if (!fits) return;
    at::NoGradGuard no_grad;
    place.local.copy_(gradient);
    gradient = place.gradient;
  }

  py::object count_;
  int backward_ = -1;
  bool takes_over_ = false;
  std::vector<Place> places_;
  std::vector<int64_t> missing_;
  std::vector<size_t> arrived_;
};

struct Target {
  std::shared_ptr<Collector> collector;
  size_t number;
};

PyObject* on_accumulation(PyObject* self, PyObject* parameter) {
  HANDLE_TH_ERRORS
  auto* target = static_cast<Target*>(PyCapsule_GetPointer(self, nullptr));
  at::Tensor tensor = THPVariable_Unpack(parameter);
  target->collector->note(target->number, tensor);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef method = {"on_accumulation", on_accumulation, METH_O, nullptr};

py::object hook(std::shared_ptr<Collector> collector, size_t number) {
  auto* target = new Target{std::move(collector), number};
  py::capsule self(target, [](void* p) { delete static_cast<Target*>(p); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, self.ptr()));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Collector, std::shared_ptr<Collector>>(m, "Collector")
      .def(py::init<py::object>())
      .def("hook", &hook)
      .def("set_places", &Collector::set_places)
      .def("start", &Collector::start)
      .def("stop", &Collector::stop)
      .def("take", &Collector::take);
}
