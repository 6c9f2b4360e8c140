#include <distgrad/core/future.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/core/blocking.hpp>

namespace future_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

/// Keeps continuations until the test runs them, and lets the test make progress in waits.
class StepHost : public FutureHost {
 public:
  void post(unique_function<void()> continuation) override {
    posted.push_back(std::move(continuation));
  }
  unique_function<void()> carry(unique_function<void()> continuation) override {
    ++carried;
    return continuation;
  }
  bool drive(time_point) override {
    if (!on_drive) return false;
    on_drive();
    return true;
  }
  void run_posted() {
    while (!posted.empty()) {
      auto next = std::move(posted.front());
      posted.pop_front();
      next();
    }
  }
  std::deque<unique_function<void()>> posted;
  int carried = 0;
  std::function<void()> on_drive;
};

std::exception_ptr an_error(std::string const& text = "an error") {
  return std::make_exception_ptr(std::runtime_error(text));
}
template <class T>
error_code code_of(Future<T> const& future) {
  try {
    future.get();
  } catch (Error const& error) {
    return error.code();
  }
  return {};
}

struct Observer : BlockingObserver {
  void blocked() override { ++entered; }
  void unblocked() noexcept override { ++left; }
  std::atomic<int> entered{0}, left{0};
};

}  // namespace

TEST_CASE("a future has its promise's value, the same for every get and every copy") {
  Promise<std::string> promise;
  auto const future = promise.future();
  auto const copy = future;
  CHECK(future.is_valid());
  CHECK_FALSE(future.is_ready());
  CHECK(promise.set_value("value"));
  CHECK(future.is_ready());
  CHECK(future.get() == "value");
  CHECK(&future.get() == &copy.get());
  CHECK(future.error() == nullptr);
  CHECK_FALSE(Future<int>().is_valid());
  CHECK(make_ready_future(3).get() == 3);
}

TEST_CASE("a future has its promise's error, thrown by every get") {
  Promise<int> promise;
  auto const future = promise.future();
  CHECK(promise.set_error(an_error()));
  CHECK(future.is_ready());
  CHECK(future.error() != nullptr);
  CHECK_THROWS_AS(future.get(), std::runtime_error);
  CHECK_THROWS_AS(future.get(), std::runtime_error);
  future.wait();  // does not throw
}

TEST_CASE("the first outcome wins") {
  Promise<int> promise;
  CHECK(promise.set_value(1));
  CHECK_FALSE(promise.set_value(2));
  CHECK_FALSE(promise.set_error(an_error()));
  CHECK_FALSE(promise.future().cancel());
  CHECK(promise.future().get() == 1);
  Promise<void> failed;
  failed.set_error(an_error());
  CHECK_FALSE(failed.set_value());
  CHECK_THROWS(failed.future().get());
}

TEST_CASE("a promise that goes away unfulfilled leaves `closed`") {
  Future<int> future;
  {
    Promise<int> promise;
    future = promise.future();
    Promise<int> const moved = std::move(promise);
    CHECK_FALSE(future.is_ready());  // the promise it was moved from does not count
  }
  CHECK(code_of(future) == errc::closed);
  Future<int> kept;
  {
    Promise<int> promise;
    kept = promise.future();
    promise.set_value(4);
  }
  CHECK(kept.get() == 4);
}

TEST_CASE("set_from takes a value or an exception") {
  Promise<int> value, error;
  value.set_from([] { return 5; });
  error.set_from([]() -> int { throw std::logic_error("no"); });
  CHECK(value.future().get() == 5);
  CHECK_THROWS_AS(error.future().get(), std::logic_error);
  Promise<void> nothing;
  nothing.set_from([] {});
  nothing.future().get();
}

TEST_CASE("values that can only be moved are kept in place") {
  Promise<std::unique_ptr<int>> promise;
  promise.set_value(std::make_unique<int>(6));
  auto const future = promise.future();
  CHECK(*future.get() == 6);
  auto const taken = std::move(future.get());
  CHECK(*taken == 6);
}

TEST_CASE("wait_for gives up in time, and sees a result that is there") {
  Promise<int> promise;
  auto const future = promise.future();
  auto const before = Clock::now();
  CHECK_FALSE(future.wait_for(5ms));
  CHECK(Clock::now() - before >= 5ms);
  CHECK_FALSE(future.wait_for(0s));
  promise.set_value(1);
  CHECK(future.wait_for(0s));
}

TEST_CASE("a wait ends when another thread sets the result") {
  for (int round = 0; round < 200; ++round) {
    Promise<int> promise;
    auto const future = promise.future();
    std::thread setter([&promise, round] { promise.set_value(round); });
    CHECK(future.get() == round);
    setter.join();
  }
}

TEST_CASE("of several threads that set, one wins, and all waiters see its value") {
  for (int round = 0; round < 50; ++round) {
    Promise<int> promise;
    auto const future = promise.future();
    std::atomic<int> wins{0}, winner{-1};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        if (promise.set_value(i)) ++wins, winner = i;
      });
      threads.emplace_back([&] { future.wait(); });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wins == 1);
    CHECK(future.get() == winner);
  }
}

TEST_CASE("then sees the ready future, and makes a future of what it returns or throws") {
  Promise<int> promise;
  auto const doubled = promise.future().then([](Future<int> const& f) { return f.get() * 2; });
  auto const nothing = promise.future().then([](Future<int> const&) {});
  auto const failed = promise.future().then([](auto const&) -> int { throw std::logic_error(""); });
  CHECK_FALSE(doubled.is_ready());
  promise.set_value(4);
  CHECK(doubled.get() == 8);
  nothing.get();
  CHECK_THROWS_AS(failed.get(), std::logic_error);
  CHECK(promise.future().then([](auto const& f) { return f.get() + 1; }).get() == 5);  // ready
}

TEST_CASE("then runs after an error, too, and passes it on through get") {
  Promise<int> promise;
  auto const seen = promise.future().then([](auto const& f) { return f.error() != nullptr; });
  auto const chain =
      promise.future().then([](auto const& f) { return f.get() + 1; }).then([](auto const& f) {
        return f.get() + 1;
      });
  promise.set_error(an_error());
  CHECK(seen.get());
  CHECK_THROWS_AS(chain.get(), std::runtime_error);
}

TEST_CASE("continuations run on the host, bound to the thread that gave them") {
  auto const host = std::make_shared<StepHost>();
  Promise<int> promise(host);
  std::vector<int> order;
  promise.future().on_ready([&] { order.push_back(1); });
  auto const later = promise.future().then([&](auto const& f) { order.push_back(f.get()); });
  CHECK(host->carried == 2);
  promise.set_value(2);
  CHECK(order.empty());
  CHECK_FALSE(later.is_ready());
  promise.future().on_ready([&] { order.push_back(3); });  // posted, though it is ready
  CHECK(order.empty());
  host->run_posted();
  CHECK(order == std::vector{1, 2, 3});
  CHECK(later.is_ready());
}

TEST_CASE("a continuation that is dropped completes its future with `closed`") {
  auto const host = std::make_shared<StepHost>();
  Promise<int> promise(host);
  auto const result = promise.future().then([](auto const& f) { return f.get(); });
  promise.set_value(1);
  host->posted.clear();
  CHECK(code_of(result) == errc::closed);
}

TEST_CASE("cancel completes the future and withdraws the operation, once") {
  Promise<int> promise;
  int withdrawn = 0;
  promise.on_cancel([&] { ++withdrawn; });
  auto const future = promise.future();
  auto const after = future.then([](auto const& f) { return code_of(f) == errc::cancelled; });
  CHECK(future.cancel());
  CHECK(withdrawn == 1);
  CHECK(code_of(future) == errc::cancelled);
  CHECK(after.get());
  CHECK_FALSE(future.cancel());
  CHECK(withdrawn == 1);
  CHECK_FALSE(promise.set_value(1));
}

TEST_CASE("cancel comes too late for a result that is there") {
  Promise<int> promise;
  int withdrawn = 0;
  promise.on_cancel([&] { ++withdrawn; });
  promise.set_value(1);
  CHECK_FALSE(promise.future().cancel());
  promise.on_cancel([&] { ++withdrawn; });
  CHECK_FALSE(promise.future().cancel());
  CHECK(withdrawn == 0);
}

TEST_CASE("a wait drives its host, and sleeps when the host has threads") {
  auto const host = std::make_shared<StepHost>();
  Promise<int> promise(host);
  auto const future = promise.future();
  int turns = 0;
  host->on_drive = [&] {
    if (++turns == 3) promise.set_value(7);
  };
  CHECK(future.get() == 7);
  CHECK(turns == 3);
  Promise<int> never(host);
  host->on_drive = [&] { ++turns; };
  CHECK_FALSE(never.future().wait_for(2ms));  // bounded although every turn did something
}

TEST_CASE("only a wait that sleeps counts as blocking") {
  Observer observer;
  BlockingObserverScope scope(&observer);
  Promise<int> promise;
  promise.set_value(1);
  promise.future().get();
  CHECK(observer.entered == 0);
  Promise<int> other;
  CHECK_FALSE(other.future().wait_for(1ms));
  CHECK(observer.entered == 1);
  CHECK(observer.left == 1);
}

}  // namespace future_tests
