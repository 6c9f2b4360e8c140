#pragma once
#include <distgrad/optim/local_optimizer.hpp>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

namespace distgrad::detail {

DISTGRAD_DECL std::string save_options(torch::optim::OptimizerOptions const& options) {
  torch::serialize::OutputArchive archive;
  options.serialize(archive);
  std::string bytes;
  archive.save_to([&bytes](void const* data, std::size_t size) {
    bytes.append(static_cast<char const*>(data), size);
    return size;
  });
  return bytes;
}

DISTGRAD_DECL void load_options(std::string const& bytes, torch::optim::OptimizerOptions& options) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  options.serialize(archive);
}

DISTGRAD_DECL LentGradients::LentGradients(std::vector<at::Tensor> const& parameters,
                                           DistAutogradContext const& context)
    : parameters_(parameters) {
  for (auto const& parameter : parameters_) {
    before_.push_back(parameter.grad());
    parameter.mutable_grad() = context.gradient(parameter);
  }
}

DISTGRAD_DECL LentGradients::~LentGradients() {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    parameters_[i].mutable_grad() = std::move(before_[i]);
  }
}

}  // namespace distgrad::detail
