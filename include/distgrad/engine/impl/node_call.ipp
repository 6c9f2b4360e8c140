#pragma once
#include <distgrad/engine/node_call.hpp>

#include <cstdint>
#include <sstream>
#include <utility>

#include <torch/csrc/autograd/anomaly_mode.h>

#include <distgrad/core/error.hpp>

namespace distgrad {
namespace detail {

template <class Got, class Wanted>
std::string misfit(char const* what, Got const& got, Wanted const& wanted) {
  std::ostringstream text;
  text << what << ' ' << got << " where " << wanted << " is needed";
  return text.str();
}

inline std::string fit_shape(InputMetadata const& input, at::Tensor& gradient) {
  if (input.is_same_shape(gradient)) return {};
  if (!input.is_expandable_to_shape(gradient)) {
    return input.incompatible_shape_error_message(0, gradient).str();
  }
  gradient = input.reduce_grad(gradient);
  return {};
}

inline std::string fit_dtype(InputMetadata const& input, at::Tensor& gradient) {
  auto const wanted = expected_dtype(input);
  auto const got = gradient.scalar_type();
  if (!wanted || *wanted == got) return {};
  bool const is_castable =
      at::isFloatingType(got) || at::isComplexType(got) == at::isComplexType(*wanted);
  if (!is_castable) return misfit("dtype", got, *wanted);
  gradient = gradient.to(*wanted);
  return {};
}

// A sparse gradient suits a dense input, and a dense one an input of any layout.
inline std::string fit_layout(InputMetadata const& input, at::Tensor const& gradient) {
  auto const got = gradient.layout();
  bool const fits = got == input.layout() || got == at::kSparse || got == at::kStrided;
  return fits ? std::string() : misfit("layout", got, input.layout());
}

inline std::string fit_device(InputMetadata const& input, at::Tensor& gradient) {
  if (gradient.device() == input.device()) return {};
  bool const is_subclass =
      input.is_tensor_subclass() || gradient.unsafeGetTensorImpl()->is_python_dispatch();
  if (is_subclass) return {};
  if (gradient.dim() != 0) return misfit("device", gradient.device(), input.device());
  gradient = gradient.to(input.device());
  return {};
}

// What nearly always holds, asked without making strings.
inline bool fits_already(InputMetadata const& input, at::Tensor const& gradient) {
  auto const dtype = expected_dtype(input);
  return gradient.layout() == input.layout() && gradient.device() == input.device() &&
         (!dtype || *dtype == gradient.scalar_type()) && input.is_same_shape(gradient);
}

inline std::string fit(InputMetadata const& input, at::Tensor& gradient, std::size_t index) {
  if (!gradient.defined() || is_unused_input(input)) return {};
  if (fits_already(input, gradient)) return {};
  std::string problem = fit_shape(input, gradient);
  if (problem.empty()) problem = fit_dtype(input, gradient);
  if (problem.empty()) problem = fit_layout(input, gradient);
  if (problem.empty()) problem = fit_device(input, gradient);
  return problem.empty() ? problem : "gradient " + std::to_string(index) + ": " + problem;
}

inline std::string wrong_count(std::size_t got, std::size_t wanted) {
  return std::to_string(got) + " gradients where " + std::to_string(wanted) + " are needed";
}

// libtorch's debugging aid, `DetectAnomalyGuard`: says which node made the first nan.
inline void check_no_nan(Node const& node, variable_list const& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].isnan().any().item().toBool()) continue;
    throw Error(errc::pass_failed, "node '" + node.name() + "' returned nan values in its output " +
                                       std::to_string(i));
  }
}

inline void check_outputs(Node& node, variable_list& outputs) {
  std::string const problem = fit_to_edges(node.next_edges(), outputs);
  if (problem.empty()) return;
  throw Error(errc::pass_failed, "node '" + node.name() + "' returned " + problem);
}

}  // namespace detail

DISTGRAD_DECL std::string fit_to_edges(torch::autograd::edge_list const& edges,
                                       variable_list& gradients) {
  if (gradients.size() != edges.size()) return detail::wrong_count(gradients.size(), edges.size());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (!edges[i].is_valid()) continue;
    InputMetadata const& input = edges[i].function->input_metadata(edges[i].input_nr);
    std::string problem = detail::fit(input, gradients[i], i);
    if (!problem.empty()) return problem;
  }
  return {};
}

DISTGRAD_DECL std::string fit_to_inputs(Node const& node, variable_list& gradients) {
  if (gradients.size() != node.num_inputs()) {
    return detail::wrong_count(gradients.size(), node.num_inputs());
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    std::string problem = detail::fit(node.input_metadata(i), gradients[i], i);
    if (!problem.empty()) return problem;
  }
  return {};
}

DISTGRAD_DECL variable_list call_node(Node& node, variable_list&& inputs, bool retain_graph) {
  call_pre_hooks(node, inputs);
  if (!retain_graph) node.will_release_variables();
  // Kept only for post hooks: a second reference would keep nodes from reusing their input.
  variable_list kept;
  if (!node.post_hooks().empty()) kept = inputs;
  variable_list outputs = node(std::move(inputs));
  detail::check_outputs(node, outputs);
  call_post_hooks(node, outputs, kept);
  if (!retain_graph) node.release_variables();
  using torch::autograd::AnomalyMode;
  if (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan()) {
    detail::check_no_nan(node, outputs);
  }
  return outputs;
}

}  // namespace distgrad
