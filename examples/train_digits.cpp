// How do I train a model whose layers live in different processes?
//
// ./scripts/demo builds this program and starts it three times: `trainer` holds the data, `stage0`
// the model's first layers and `stage1` its last. Trains with SGD, then with Adam, and compares
// every parameter with what training in one process with libtorch alone makes of it.
#include <distgrad/distgrad.hpp>
#include <distgrad/live/live_server.hpp>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using distgrad::RRef, distgrad::TcpEngine;
using Clock = std::chrono::steady_clock;
using Widths = std::vector<std::int64_t>;

constexpr std::array worker_names = {"trainer", "stage0", "stage1"};
constexpr double required_accuracy = 0.95;
constexpr double allowed_difference = 1e-5;
constexpr std::int64_t batch_size = 32;

struct Arguments {
  std::string data = "examples/data/digits.csv";
  std::string optimizer = "both";
  std::string label;
  int epochs = 30;
  std::optional<std::uint16_t> live_port;
  int linger_seconds = 0;
};

// ---- The model: the same classes serve the workers and the comparison in one process.

/// Some consecutive layers, with a rectifier after each; the model's last has none.
struct Stage {
  std::vector<torch::nn::Linear> layers;
  bool is_last = false;

  /// @param x [batch, inputs]
  at::Tensor forward(at::Tensor x) const {
    for (auto layer : layers) {
      x = layer->forward(x);
      if (!is_last || layer.get() != layers.back().get()) x = x.relu();
    }
    return x;
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (auto const& layer : layers) {
      for (auto const& parameter : layer->parameters()) all.push_back(parameter);
    }
    return all;
  }
};

Stage make_stage(Widths const& widths, bool is_last, std::uint64_t seed) {
  torch::manual_seed(seed);
  Stage stage{{}, is_last};
  for (std::size_t i = 1; i < widths.size(); ++i) {
    stage.layers.emplace_back(torch::nn::LinearOptions(widths[i - 1], widths[i]));
  }
  return stage;
}
Stage make_first(std::uint64_t seed) { return make_stage({64, 128, 64}, false, seed); }
Stage make_last(std::uint64_t seed) { return make_stage({64, 32, 10}, true, seed + 1); }

/// Runs where the stage lives: references to its parameters, for an optimizer elsewhere.
std::vector<RRef<at::Tensor>> parameters_of(RRef<Stage> const& stage) {
  std::int64_t count = 0;
  std::vector<RRef<at::Tensor>> references;
  for (auto const& parameter : stage.local_value().parameters()) {
    count += parameter.numel();
    references.push_back(distgrad::this_worker().make_rref(parameter));
  }
  std::cout << "holds " << references.size() << " parameters with " << count << " numbers"
            << std::endl;
  return references;
}

// ---- The data.

struct Digits {
  at::Tensor pixels;  // [examples, 64], float, 0 to 1
  at::Tensor labels;  // [examples], long
  std::int64_t size() const { return labels.size(0); }
  Digits select(at::Tensor const& rows) const {
    return {pixels.index_select(0, rows), labels.index_select(0, rows)};
  }
};

[[noreturn]] void fail(std::string const& why) { throw std::runtime_error(why); }

Digits read_digits(std::string const& path) {
  std::ifstream file(path);
  if (!file) {
    fail("cannot read '" + path +
         "'; start from the root of the repository, or name the file by "
         "--data FILE");
  }
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    std::vector<float> values;
    for (std::string cell; std::getline(cells, cell, ',');) values.push_back(std::stof(cell));
    if (values.size() != 65 || values.back() < 0 || values.back() > 9) {
      fail(path + ":" + std::to_string(labels.size() + 1) +
           ": expected 64 pixels and a digit, separated by commas; is it the right file?");
    }
    for (int i = 0; i < 64; ++i) pixels.push_back(values[i] / 16);
    labels.push_back(static_cast<std::int64_t>(values.back()));
  }
  if (labels.size() < 100) fail(path + " has only " + std::to_string(labels.size()) + " digits");
  auto const rows = static_cast<std::int64_t>(labels.size());
  return {at::from_blob(pixels.data(), {rows, 64}, at::kFloat).clone(),
          at::from_blob(labels.data(), {rows}, at::kLong).clone()};
}

/// 0 to `size` - 1 in an order that depends on `seed` alone.
at::Tensor shuffled(std::int64_t size, std::uint32_t seed) {
  auto order = at::empty({size}, at::kLong);
  auto* first = order.data_ptr<std::int64_t>();
  std::iota(first, first + size, 0);
  std::shuffle(first, first + size, std::mt19937(seed));
  return order;
}

struct Split {
  Digits train, test;
};

Split split(Digits const& all) {
  auto const order = shuffled(all.size(), 0);
  auto const count = all.size() * 8 / 10;
  return {all.select(order.narrow(0, 0, count)),
          all.select(order.narrow(0, count, all.size() - count))};
}

/// Calls `step(epoch, batch)` for all batches of all epochs, always in the same order.
template <class Step>
void for_each_batch(Digits const& train, int epochs, Step step) {
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    auto const order = shuffled(train.size(), epoch);
    for (auto const& rows : order.split(batch_size)) step(epoch, train.select(rows));
  }
}

std::int64_t count_correct(at::Tensor const& scores, at::Tensor const& labels) {
  return scores.argmax(1).eq(labels).sum().item<std::int64_t>();
}

// ---- What is seen of it.

/// A bar that is drawn over and over on a terminal, otherwise one line per epoch.
class Progress {
 public:
  Progress(std::string title, std::string label, int epochs, std::int64_t samples_per_epoch)
      : title_(std::move(title)),
        label_(std::move(label)),
        epochs_(epochs),
        samples_per_epoch_(samples_per_epoch) {}

  void add(int epoch, double loss, std::int64_t correct, std::int64_t samples) {
    loss_ += loss * static_cast<double>(samples);
    correct_ += correct;
    samples_ += samples;
    bool const epoch_ended = samples_ == samples_per_epoch_;
    bool const is_due = Clock::now() - drawn_at_ > std::chrono::milliseconds(50);
    if (is_terminal_ ? is_due || epoch_ended : epoch_ended) draw(epoch, epoch_ended);
    if (epoch_ended) {
      loss_ = 0;
      correct_ = samples_ = 0;
      epoch_began_ = Clock::now();
    }
  }

 private:
  void draw(int epoch, bool epoch_ended) {
    drawn_at_ = Clock::now();
    auto const samples = static_cast<double>(samples_);
    double const seconds = std::chrono::duration<double>(drawn_at_ - epoch_began_).count();
    char text[160];
    std::snprintf(text, sizeof text,
                  "%-4s epoch %2d/%d %sloss %.4f  accuracy %.3f  %6.0f samples/s", title_.c_str(),
                  epoch, epochs_, bar(epoch).c_str(), loss_ / samples,
                  static_cast<double>(correct_) / samples, samples / seconds);
    bool const keep = !is_terminal_ || (epoch == epochs_ && epoch_ended);
    std::cout << (is_terminal_ ? "\r\033[K" : "") << label_ << text << (keep ? "\n" : "")
              << std::flush;
  }
  std::string bar(int epoch) const {
    if (!is_terminal_) return " ";
    constexpr int width = 20;
    auto const done = (epoch - 1) * samples_per_epoch_ + samples_;
    auto const filled = static_cast<std::size_t>(width * done / (epochs_ * samples_per_epoch_));
    return "[" + std::string(filled, '=') + std::string(width - filled, ' ') + "] ";
  }

  std::string title_, label_;
  int epochs_;
  std::int64_t samples_per_epoch_;
  bool is_terminal_ = isatty(STDOUT_FILENO) == 1;
  double loss_ = 0;
  std::int64_t correct_ = 0, samples_ = 0;
  Clock::time_point epoch_began_ = Clock::now(), drawn_at_ = {};
};

// ---- The training, twice: over workers, and in one process.

struct Trained {
  std::vector<at::Tensor> parameters;
  double test_accuracy = 0;
};

template <class Optimizer, class Options>
Trained train_over_workers(TcpEngine& engine, Split const& digits, std::string const& title,
                           Arguments const& arguments, Options const& options) {
  auto first = engine.remote<make_first>("stage0", std::uint64_t(1));  // RRef<Stage>
  auto last = engine.remote<make_last>("stage1", std::uint64_t(1));
  auto parameters = engine.rpc_sync<parameters_of>("stage0", first);
  for (auto& parameter : engine.rpc_sync<parameters_of>("stage1", last)) {
    parameters.push_back(std::move(parameter));
  }
  distgrad::DistributedOptimizer<Optimizer> optimizer(engine, parameters, options);

  Progress progress(title, arguments.label, arguments.epochs, digits.train.size());
  for_each_batch(digits.train, arguments.epochs, [&](int epoch, Digits const& batch) {
    auto context = engine.context();
    auto hidden = first.rpc_sync<&Stage::forward>(batch.pixels);
    auto scores = last.rpc_sync<&Stage::forward>(hidden);
    auto loss = at::cross_entropy_loss(scores, batch.labels);
    context.backward({loss});
    optimizer.step(context);
    progress.add(epoch, loss.item<double>(), count_correct(scores, batch.labels), batch.size());
  });

  Trained result;
  auto scores = last.rpc_sync<&Stage::forward>(first.rpc_sync<&Stage::forward>(digits.test.pixels));
  result.test_accuracy = static_cast<double>(count_correct(scores, digits.test.labels)) /
                         static_cast<double>(digits.test.size());
  for (auto const& parameter : parameters) result.parameters.push_back(parameter.to_here());
  return result;
}

template <class Optimizer, class Options>
std::vector<at::Tensor> train_in_one_process(Digits const& train, int epochs,
                                             Options const& options) {
  auto const first = make_first(1), last = make_last(1);
  auto parameters = first.parameters();
  for (auto const& parameter : last.parameters()) parameters.push_back(parameter);
  Optimizer optimizer(parameters, options);
  for_each_batch(train, epochs, [&](int, Digits const& batch) {
    optimizer.zero_grad();
    auto scores = last.forward(first.forward(batch.pixels));
    at::cross_entropy_loss(scores, batch.labels).backward();
    optimizer.step();
  });
  return parameters;
}

double largest_difference(std::vector<at::Tensor> const& a, std::vector<at::Tensor> const& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto const here = a[i].detach().sub(b[i].detach()).abs().max().item<double>();
    if (std::isnan(here)) return here;
    largest = std::max(largest, here);
  }
  return largest;
}

/// @return whether the result is as good as promised.
template <class Optimizer, class Options>
bool train(TcpEngine& engine, Split const& digits, std::string const& title,
           Arguments const& arguments, Options const& options) {
  auto const trained = train_over_workers<Optimizer>(engine, digits, title, arguments, options);
  auto const expected = train_in_one_process<Optimizer>(digits.train, arguments.epochs, options);
  auto const difference = largest_difference(trained.parameters, expected);
  bool const is_good =
      trained.test_accuracy >= required_accuracy && difference <= allowed_difference;
  std::cout << arguments.label << title << ": test accuracy " << trained.test_accuracy
            << " (at least " << required_accuracy << "), largest difference from one process "
            << difference << " (at most " << allowed_difference << ")"
            << (is_good ? "" : ": MISSED") << std::endl;
  return is_good;
}

// ---- The program.

bool run_trainer(TcpEngine& engine, Arguments const& arguments) {
  auto const digits = split(read_digits(arguments.data));
  std::cout << arguments.label << digits.train.size() << " digits to learn from, "
            << digits.test.size() << " to be tested on" << std::endl;
  bool is_good = true;
  if (arguments.optimizer != "adam") {
    is_good &= train<torch::optim::SGD>(engine, digits, "SGD", arguments,
                                        torch::optim::SGDOptions(0.05).momentum(0.9));
  }
  if (arguments.optimizer != "sgd") {
    is_good &= train<torch::optim::Adam>(engine, digits, "Adam", arguments,
                                         torch::optim::AdamOptions(0.003));
  }
  return is_good;
}

/// The part of the process that the launcher's variables name. @return the exit status.
int run_worker(Arguments const& arguments) {
  at::set_num_threads(1);  // sums in one order, here and in the comparison
  auto const settings = distgrad::RendezvousSettings::from_environment();
  if (settings.world_size != worker_names.size())
    fail("WORLD_SIZE must be 3; ./scripts/demo sets it");
  TcpEngine engine = TcpEngine::from_environment(
      {.name = worker_names[settings.rank], .metrics = arguments.live_port.has_value()});
  std::optional<distgrad::LiveServer> live;
  if (engine.rank() == 0 && arguments.live_port) {
    live.emplace(engine, distgrad::LiveServerOptions{.port = *arguments.live_port});
    std::cout << arguments.label << "live at " << live->url() << std::endl;
  }
  bool const is_good = engine.rank() != 0 || run_trainer(engine, arguments);
  if (live && arguments.linger_seconds > 0) {
    std::cout << arguments.label << "done; the page stays for " << arguments.linger_seconds << " s"
              << std::endl;
    std::this_thread::sleep_for(std::chrono::seconds(arguments.linger_seconds));
  }
  engine.shutdown(std::chrono::nanoseconds(0));  // the stages serve until the trainer is here
  return is_good ? 0 : 1;
}

void print_free_port() {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  std::cout << tcp::acceptor(io, {tcp::v4(), 0}).local_endpoint().port() << std::endl;
}

void print_usage() {
  std::cout <<
      R"(usage: train_digits [options]      one of three processes; ./scripts/demo starts them all

The variables RANK (0 to 2), WORLD_SIZE (3), MASTER_ADDR and MASTER_PORT say which.

  --optimizer NAME   sgd, adam, or both (default): one after the other
  --epochs N         default 30
  --data FILE        default examples/data/digits.csv
  --label TEXT       in front of each line of the trainer
  --live PORT        show the group in a browser while it trains; 0: any free port
  --linger SECONDS   keep the page for so long after the training
  --free-port        print a port that can be MASTER_PORT on this host, and end
  --help             print this
)";
}

/// @return false if there is nothing more to do.
bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    std::string const option = argv[i];
    if (option == "--help") return print_usage(), false;
    if (option == "--free-port") return print_free_port(), false;
    if (i + 1 == argc) fail("'" + option + "' is unknown or needs a value; see --help");
    std::string const value = argv[++i];
    if (option == "--data")
      arguments.data = value;
    else if (option == "--optimizer")
      arguments.optimizer = value;
    else if (option == "--label")
      arguments.label = value;
    else if (option == "--live")
      arguments.live_port = static_cast<std::uint16_t>(std::atoi(value.c_str()));
    else if (option == "--linger")
      arguments.linger_seconds = std::atoi(value.c_str());
    else if (option == "--epochs")
      arguments.epochs = std::atoi(value.c_str());
    else
      fail("option '" + option + "' is unknown; see --help");
  }
  if (arguments.epochs < 1 || arguments.epochs > 10000) fail("--epochs: a number from 1 to 10000");
  if (arguments.optimizer != "sgd" && arguments.optimizer != "adam" &&
      arguments.optimizer != "both")
    fail("--optimizer: sgd, adam or both");
  return true;
}

int main(int argc, char** argv) {
  try {
    Arguments arguments;
    return parse(argc, argv, arguments) ? run_worker(arguments) : 0;
  } catch (distgrad::Error const& error) {
    std::cerr << "train_digits: " << error.what()
              << "\nAll three processes must run at once, with the same program and the same "
                 "MASTER_PORT; ./scripts/demo sees to that."
              << std::endl;
  } catch (std::exception const& error) {
    std::cerr << "train_digits: " << error.what() << std::endl;
  }
  return 2;
}

// Output of ./scripts/demo, without the progress:
// trainer | SGD: test accuracy 0.975 (at least 0.95), largest difference from one process 0 (...)
// trainer | Adam: test accuracy 0.966667 (at least 0.95), largest difference from one process 0
// (...)
