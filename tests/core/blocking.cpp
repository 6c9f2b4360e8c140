#include <distgrad/core/blocking.hpp>
//
#include <stdexcept>
#include <thread>

#include <doctest/doctest.h>

namespace blocking_tests {

namespace {

struct Counting : distgrad::BlockingObserver {
  void blocked() override {
    if (refuse) throw std::runtime_error("no thread is left");
    ++in;
  }
  void unblocked() noexcept override { ++out; }
  int in = 0, out = 0;
  bool refuse = false;
};

TEST_CASE("a region tells the thread's observer when it begins and ends") {
  Counting observer;
  distgrad::BlockingObserverScope const scope(&observer);
  {
    distgrad::BlockingRegion const region;
    CHECK(observer.in == 1);
    CHECK(observer.out == 0);
    distgrad::BlockingRegion const inner;  // the same wait
    CHECK(observer.in == 1);
  }
  CHECK(observer.out == 1);
  distgrad::BlockingRegion const again;
  CHECK(observer.in == 2);
}

TEST_CASE("a region that is refused has not begun, and the next one asks again") {
  Counting observer;
  distgrad::BlockingObserverScope const scope(&observer);
  observer.refuse = true;
  CHECK_THROWS_AS(distgrad::BlockingRegion(), std::runtime_error);
  CHECK(observer.out == 0);
  observer.refuse = false;
  {
    distgrad::BlockingRegion const region;
    CHECK(observer.in == 1);
  }
  CHECK(observer.out == 1);
}

TEST_CASE("an observer belongs to one thread and to its scope") {
  Counting outer, inner;
  {
    distgrad::BlockingObserverScope const a(&outer);
    {
      distgrad::BlockingObserverScope const b(&inner);
      distgrad::BlockingRegion const region;
    }
    distgrad::BlockingRegion const region;
    std::thread([] { distgrad::BlockingRegion const elsewhere; }).join();
  }
  distgrad::BlockingRegion const nobody;
  CHECK(inner.in == 1);
  CHECK(outer.in == 1);
}

}  // namespace

}  // namespace blocking_tests
