// How results are awaited: futures, continuations, completion tokens, and contexts in all of them.
#include "rig.hpp"

#include <atomic>
#include <future>

#include <ATen/ops/ones.h>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

namespace completion_tests {

namespace {
namespace completion {

namespace asio = boost::asio;
using distgrad::errc;
using distgrad::Future;
using distgrad::this_worker;
using distgrad::Worker;
using std::chrono::seconds;

at::Tensor add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
int increment(int x) { return x + 1; }
int fail() { throw std::runtime_error("failed on purpose"); }
std::atomic<int> touched{0};
void touch() { ++touched; }
distgrad::ContextId context_here() { return this_worker().current_context(); }
/// The handler's continuation runs in the handler's context.
Future<bool> context_in_continuation() {
  auto& self = this_worker();
  auto const context = self.current_context();
  return self.rpc_async<context_here>(0).then([&self, context](auto const& there) {
    return there.get() == context && self.current_context() == context;
  });
}
struct Counter {
  int value = 0;
  int increase(int by) { return value += by; }
};
Counter make_counter() { return {}; }

template <class T>
T within_bound(std::future<T> future) {
  REQUIRE(future.wait_for(seconds(30)) == std::future_status::ready);
  return future.get();
}

void check_futures(Worker& self) {
  auto const sum = self.rpc_async<add>(1, at::ones({2}), at::ones({2}));
  CHECK(sum.wait_for(seconds(30)));
  CHECK(sum.is_ready());
  CHECK(sum.error() == nullptr);
  CHECK(sum.get().equal(at::ones({2}).mul(2)));
  CHECK(sum.get().is_same(sum.get()));  // every get has the same outcome
  auto const copy = sum;
  CHECK(copy.get().is_same(sum.get()));
}

void check_then(Worker& self) {
  auto chain = self.rpc_async<increment>(1, 0);
  for (int i = 0; i < 10; ++i) {
    chain = chain.then([](Future<int> const& before) { return before.get() + 1; });
  }
  CHECK(chain.get() == 11);
  auto const ready = self.rpc_async<increment>(1, 1);
  ready.wait();
  std::vector<Future<int>> many;
  for (int i = 0; i < 5; ++i) {
    many.push_back(ready.then([i](auto const& value) { return value.get() * i; }));
  }
  for (int i = 0; i < 5; ++i) CHECK(many[i].get() == 2 * i);
  // A continuation may call and wait.
  auto const nested =
      ready.then([&self](auto const& value) { return self.rpc_sync<increment>(1, value.get()); });
  CHECK(nested.get() == 3);
}

void check_errors_in_then(Worker& self) {
  auto const failed = self.rpc_async<fail>(1);
  auto const seen = failed.then([](auto const& f) { return f.error() != nullptr; });
  CHECK(seen.get());
  auto const passed_on = failed.then([](auto const& f) { return f.get(); });
  CHECK(rig::text_of([&] { passed_on.get(); }).find("failed on purpose") != std::string::npos);
  auto const own = self.rpc_async<increment>(1, 1).then(
      [](auto const&) -> int { throw std::logic_error("in the continuation"); });
  CHECK_THROWS_AS(own.get(), std::logic_error);
}

void check_callback(Worker& self) {
  std::promise<int> value;
  self.rpc_async<increment>(1, 4, [&](std::exception_ptr error, int result) {
    error ? value.set_exception(error) : value.set_value(result);
  });
  CHECK(within_bound(value.get_future()) == 5);

  std::promise<void> error_seen;
  self.rpc_async<fail>(1, [&](std::exception_ptr error, int) { error_seen.set_exception(error); });
  CHECK_THROWS_AS(within_bound(error_seen.get_future()), distgrad::RemoteError);

  touched = 0;
  std::promise<bool> done;
  self.rpc_async<touch>(1, [&](std::exception_ptr error) { done.set_value(error == nullptr); });
  CHECK(within_bound(done.get_future()));
  CHECK(touched == 1);

  std::promise<int> counted;
  auto const counter = self.remote<make_counter>(1);
  self.rpc_async<&Counter::increase>(
      1, counter, 3, [&](std::exception_ptr, int result) { counted.set_value(result); });
  CHECK(within_bound(counted.get_future()) == 3);
}

void check_use_future(Worker& self) {
  CHECK(within_bound(self.rpc_async<increment>(1, 7, asio::use_future)) == 8);
  CHECK_THROWS_AS(within_bound(self.rpc_async<fail>(1, asio::use_future)), distgrad::RemoteError);
  within_bound(self.rpc_async<touch>(1, asio::use_future));
  auto const sum =
      within_bound(self.rpc_async<add>(1, at::ones({2}), at::ones({2}), asio::use_future));
  CHECK(sum.equal(at::ones({2}).mul(2)));
}

asio::awaitable<int> count_to(Worker& self, int end, std::thread::id io_thread) {
  int value = 0;
  while (value < end) {
    value = co_await self.rpc_async<increment>(1, value, asio::use_awaitable);
    CHECK(std::this_thread::get_id() == io_thread);
  }
  try {
    co_await self.rpc_async<fail>(1, asio::use_awaitable);
    FAIL_CHECK("no error arrived");
  } catch (distgrad::RemoteError const& error) {
    CHECK(error.remote_text() == "failed on purpose");
  }
  co_await self.rpc_async<touch>(1, asio::use_awaitable);
  co_return value;
}

void check_coroutine(Worker& self) {
  asio::io_context io;
  auto result =
      asio::co_spawn(io, count_to(self, 20, std::this_thread::get_id()), asio::use_future);
  io.run_for(seconds(60));  // the awaited calls keep it busy
  CHECK(within_bound(std::move(result)) == 20);
}

void check_executor(Worker& self) {
  asio::io_context io;
  int value = 0;
  self.rpc_async<increment>(1, 1, asio::bind_executor(io, [&](std::exception_ptr, int result) {
                              value = result;  // on this thread: nobody else runs the context
                            }));
  io.run_for(seconds(30));
  CHECK(value == 2);
}

void check_context(Worker& self) {
  auto const outside = self.rpc_async<increment>(1, 1);
  auto context = self.context();
  auto const in_context = [&self] { return self.current_context(); };
  auto const inside = self.rpc_async<increment>(1, 1);
  CHECK((inside.then([&](auto const&) { return in_context(); }).get() == context.id()));
  CHECK((inside.then([&](auto const&) { return self.rpc_sync<context_here>(1); }).get() ==
         context.id()));
  CHECK((outside.then([&](auto const&) { return in_context(); }).get() == context.id()));
  CHECK((self.rpc_sync<context_here>(1) == context.id()));
  CHECK(self.rpc_sync<context_in_continuation>(1));
  std::promise<distgrad::ContextId> seen;
  self.rpc_async<increment>(1, 1, [&](std::exception_ptr, int) { seen.set_value(in_context()); });
  CHECK((within_bound(seen.get_future()) == context.id()));
}

void check_no_context(Worker& self) {
  auto const outside = self.rpc_async<increment>(1, 1).then(
      [&self](auto const&) { return rig::error_of([&] { self.current_context(); }); });
  CHECK(outside.get() == errc::no_context);
  CHECK(rig::error_of([&] { self.rpc_sync<context_here>(1); }) == errc::no_context);
}

}  // namespace completion
}  // namespace

TEST_CASE_TEMPLATE("[RPC-23] a future gives the same outcome as often as it is asked", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  completion::check_futures(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-24] continuations chain, nest, see errors and make their own", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  completion::check_then(cluster[0]);
  completion::check_errors_in_then(cluster[0]);
}

TEST_CASE_TEMPLATE("a call completes a callback, a std::future, or a handler on its executor",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  completion::check_callback(cluster[0]);
  completion::check_use_future(cluster[0]);
  completion::check_executor(cluster[0]);
}

TEST_CASE_TEMPLATE("a coroutine awaits calls and resumes on its own executor", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  completion::check_coroutine(cluster[0]);
}

TEST_CASE_TEMPLATE("continuations and callbacks run in the context they were made in", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  completion::check_context(cluster[0]);
  completion::check_no_context(cluster[0]);
  completion::check_no_context(cluster[1]);
}

}  // namespace completion_tests
