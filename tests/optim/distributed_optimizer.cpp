#include <distgrad/optim/distributed_optimizer.hpp>

#include <distgrad/distgrad.hpp>

#include <doctest/doctest.h>

#include <torch/optim/sgd.h>

#include <ATen/ops/ones.h>

namespace distributed_optimizer_tests {

using namespace distgrad;

namespace {

std::exception_ptr error_with(errc code, std::string const& text) {
  return std::make_exception_ptr(Error(code, text));
}
template <class F>
std::string text_thrown_by(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("nothing is thrown when nothing failed") {
  CHECK_NOTHROW(distgrad::detail::rethrow_all({}));
}

TEST_CASE("a single error is thrown as it is") {
  auto const error = error_with(errc::timeout, "late");
  try {
    distgrad::detail::rethrow_all({error});
    FAIL("no error");
  } catch (...) {
    CHECK(std::current_exception() == error);
  }
}

TEST_CASE("of several errors the first is thrown, and tells of the others") {
  auto const remote = std::make_exception_ptr(
      RemoteError(errc::remote_exception, "ps0", "step", CallId{4}, "first"));
  try {
    distgrad::detail::rethrow_all(
        {remote, error_with(errc::timeout, "second"), error_with(errc::closed, "third")});
    FAIL("no error");
  } catch (RemoteError const& error) {
    CHECK(error.worker() == "ps0");
    CHECK(error.function() == "step");
    CHECK(error.call() == CallId{4});
    CHECK(error.code() == errc::remote_exception);
    auto const text = error.remote_text();
    CHECK(text.find("first") != std::string::npos);
    CHECK(text.find("second") != std::string::npos);
    CHECK(text.find("third") != std::string::npos);
  }
  CHECK(text_thrown_by([] {
          distgrad::detail::rethrow_all(
              {error_with(errc::timeout, "one"), error_with(errc::closed, "two")});
        }).find("one; also two") != std::string::npos);
}

TEST_CASE("an optimizer without parameters is refused") {
  LocalCluster<1> cluster;
  CHECK(text_thrown_by([&] {
          DistributedOptimizer<torch::optim::SGD>(cluster[0], {}, torch::optim::SGDOptions(1));
        }).find("at least one parameter") != std::string::npos);
}

TEST_CASE("a worker alone steps its own parameters") {
  LocalCluster<1> cluster;
  auto const weight = cluster[0].make_rref(at::ones({2}).set_requires_grad(true));
  DistributedOptimizer<torch::optim::SGD> const optimizer(cluster[0], {weight},
                                                          torch::optim::SGDOptions(0.5));
  auto ctx = cluster[0].context();
  ctx.backward({weight.local_value().mul(3).sum()});
  optimizer.step(ctx);
  optimizer.step(ctx.id());
  CHECK(weight.local_value().detach().equal(at::ones({2}).mul(1 - 2 * 0.5 * 3)));
}

}  // namespace distributed_optimizer_tests
