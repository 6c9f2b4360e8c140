// How do I train over a transport of my own? A digit classifier, split over three processes:
//
//   scripts/demo --program build/train_digits -- --data examples/data/digits.csv
#include <distgrad/distgrad.hpp>

#include "unix_transport.hpp"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <boost/asio/ip/tcp.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

using namespace distgrad;
using Engine = DistEngine<plugin::UnixTransport, CpuQueues>;

constexpr double required_accuracy = 0.95;

struct Layer {
  torch::nn::Linear linear;
  at::Tensor forward(at::Tensor const& x) { return linear->forward(x); }
  at::Tensor forward_relu(at::Tensor const& x) { return linear->forward(x).relu(); }
};

Layer make_layer(std::int64_t inputs, std::int64_t outputs) {
  torch::manual_seed(1);
  return {torch::nn::Linear(inputs, outputs)};
}

std::vector<RRef<at::Tensor>> parameters_of(RRef<Layer> const& layer) {
  std::vector<RRef<at::Tensor>> references;
  for (auto const& parameter : layer.local_value().linear->parameters()) {
    references.push_back(this_worker().make_rref(parameter));
  }
  return references;
}

struct Digits {
  at::Tensor pixels;  // [examples, 64], 0 to 1
  at::Tensor labels;  // [examples]
};

Digits read_digits(std::string const& path) {
  std::ifstream file(path);
  std::vector<float> numbers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) numbers.push_back(std::stof(cell));
  }
  if (numbers.empty())
    throw std::runtime_error("cannot read '" + path + "'; name it by --data FILE");
  torch::manual_seed(1);
  auto rows = at::tensor(numbers).reshape({-1, 65});
  rows = rows.index_select(0, at::randperm(rows.size(0)));
  return {rows.narrow(1, 0, 64).div(16), rows.select(1, 64).to(at::kLong)};
}

/// @return how much of the last fifth of the data, which it did not see, the model gets right.
double train(Engine& engine, Digits const& digits) {
  auto first = engine.remote<make_layer>("stage0", 64, 96);  // RRef<Layer>: stays on its worker
  auto last = engine.remote<make_layer>("stage1", 96, 10);
  auto parameters = engine.rpc_sync<parameters_of>("stage0", first);
  for (auto& parameter : engine.rpc_sync<parameters_of>("stage1", last)) {
    parameters.push_back(std::move(parameter));
  }
  DistributedOptimizer<torch::optim::SGD> optimizer(engine, parameters,
                                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  auto const scores_of = [&](at::Tensor const& pixels) {
    return last.rpc_sync<&Layer::forward>(first.rpc_sync<&Layer::forward_relu>(pixels));
  };

  auto const count = digits.labels.size(0) * 4 / 5;
  for (int epoch = 1; epoch <= 20; ++epoch) {
    double sum = 0;
    for (std::int64_t row = 0; row + 32 <= count; row += 32) {
      auto context = engine.context();
      auto const loss = at::cross_entropy_loss(scores_of(digits.pixels.narrow(0, row, 32)),
                                               digits.labels.narrow(0, row, 32));
      context.backward({loss});
      optimizer.step(context);
      sum += loss.item<double>();
    }
    std::cout << "epoch " << epoch << "/20  loss " << sum / static_cast<double>(count / 32)
              << std::endl;
  }
  auto const rest = digits.labels.size(0) - count;
  auto const right = scores_of(digits.pixels.narrow(0, count, rest))
                         .argmax(1)
                         .eq(digits.labels.narrow(0, count, rest));
  return right.to(at::kDouble).mean().item<double>();
}

int main(int argc, char** argv) try {
  std::string const option = argc > 1 ? argv[1] : "";
  if (option == "--free-port") {
    boost::asio::io_context io;
    boost::asio::ip::tcp::acceptor const any(io, {boost::asio::ip::tcp::v4(), 0});
    std::cout << any.local_endpoint().port() << std::endl;
    return 0;
  }
  char const* names[] = {"trainer", "stage0", "stage1"};
  auto const rank = RendezvousSettings::from_environment().rank;
  Engine engine = Engine::from_environment({.name = names[rank % 3]});
  double const accuracy =
      rank == 0
          ? train(engine, read_digits(option == "--data" && argc > 2 ? argv[2]
                                                                     : "examples/data/digits.csv"))
          : 1;
  if (rank == 0)
    std::cout << "test accuracy " << accuracy << " (at least " << required_accuracy << ")"
              << std::endl;
  engine.shutdown(std::chrono::nanoseconds(0));  // the stages serve until the trainer is here
  return accuracy >= required_accuracy ? 0 : 1;
} catch (std::exception const& error) {
  std::cerr << "train_digits: " << error.what() << std::endl;
  return 2;
}
