#include <distgrad/autograd/dist_autograd_context.hpp>

#include <doctest/doctest.h>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <thread>

namespace dist_autograd_context_tests {

using namespace distgrad;

namespace {

ContextId const context_id{WorkerId{0}, Incarnation{1}, 5};
AutogradMessageId message(std::uint64_t n) { return {WorkerId{0}, Incarnation{1}, n}; }
at::Tensor leaf() { return at::ones({2}).set_requires_grad(true); }

GradientMap gradient_of(at::Tensor const& variable, at::Tensor gradient) {
  GradientMap map;
  map.accumulate(variable, std::move(gradient));
  return map;
}

}  // namespace

TEST_CASE("a context finds send and recv functions by their message") {
  DistAutogradContext context(context_id);
  CHECK(context.id() == context_id);
  std::vector<at::Tensor> const sent{leaf()};
  std::vector<at::Tensor> received{at::ones({2})};
  auto const send = context.add_send(message(1), WorkerId{3}, sent);
  context.add_recv(message(1), WorkerId{3}, received);  // a call to itself has both
  context.add_recv(message(2), WorkerId{3}, received = {at::ones({2})});
  CHECK(context.find_send(message(1)).get() == send.get());
  CHECK(context.find_recv(message(2)).get() == received[0].grad_fn().get());
  CHECK_FALSE(bool(context.find_send(message(2))));
  CHECK_FALSE(bool(context.find_recv(message(3))));
  CHECK(context.sends().size() == 1);
  CHECK(context.recvs().size() == 2);
  auto const& recv = dynamic_cast<RecvRpcBackward const&>(*context.find_recv(message(2)));
  CHECK(recv.context() == context_id);
}

TEST_CASE("[DA-74] a context knows each worker once") {
  DistAutogradContext context(context_id);
  CHECK(context.known_workers().empty());
  for (std::uint32_t worker : {4, 2, 4}) context.add_known_worker(WorkerId{worker});
  CHECK(context.known_workers() == std::set{WorkerId{2}, WorkerId{4}});
}

TEST_CASE("gradients of several passes add up, and .grad stays undefined") {
  DistAutogradContext context(context_id);
  auto const x = leaf(), y = leaf();
  CHECK_FALSE(context.gradient(x).defined());
  context.merge(gradient_of(x, at::ones({2})));
  context.merge(gradient_of(y, at::ones({2}).mul(5)));
  context.merge(gradient_of(x, at::ones({2}).mul(2)));
  CHECK(context.gradient(x).equal(at::ones({2}).mul(3)));
  CHECK(context.gradient(y).equal(at::ones({2}).mul(5)));
  auto const all = context.gradients();
  REQUIRE(all.size() == 2);
  CHECK(all[0].variable.is_same(x));
  CHECK(all[1].variable.is_same(y));
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("passes of a context are numbered from one, whatever thread asks") {
  DistAutogradContext context(context_id);
  std::vector<std::uint32_t> numbers(40);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) numbers[std::size_t(t * 10 + i)] = context.next_pass();
    });
  }
  for (auto& thread : threads) thread.join();
  std::ranges::sort(numbers);
  for (std::uint32_t i = 0; i < 40; ++i) CHECK(numbers[i] == i + 1);
}

}  // namespace dist_autograd_context_tests
