#pragma once
// One type per way to miss TransportPolicy by one requirement, and what the compiler has to say.
#include "near_miss.hpp"

#include <distgrad/transport/archetype.hpp>
#include <distgrad/transport/concept.hpp>

namespace near_transport {

using namespace distgrad;

struct Model {
  using contract = transport_v1;
  struct Options {};
  explicit Model(Options);
  std::string local_endpoint() const;
  void start(TransportSetup);
  void async_send(WorkerId, Message, SendCompletion);
  std::size_t run_until(time_point);
  void wake() noexcept;
  void close() noexcept;
};
HIT(Transport, Model);
HIT(Transport, TransportArchetype);

struct ForLaterContract : Model {
  struct contract : transport_v1 {};
  using Model::Model;
};
HIT(Transport, ForLaterContract);

struct OtherContract : Model {
  using contract = int;
  using Model::Model;
};
NEAR_MISS(Transport, OtherContract, "a type `contract` derived from distgrad::transport_v1");

struct NoOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoOptions(Options);
};
NEAR_MISS(Transport, NoOptions, "a type `Options` that has a default constructor");

struct NoConstructor : Model {
  NoConstructor();
};
NEAR_MISS(Transport, NoConstructor, "a constructor that takes the type's `Options`");

struct MutableEndpoint : Model {
  using Model::Model;
  std::string local_endpoint();
};
NEAR_MISS(Transport, MutableEndpoint, "std::string local_endpoint() const");

struct EndpointView : Model {
  using Model::Model;
  std::string_view local_endpoint() const;
};
NEAR_MISS(Transport, EndpointView, "std::string local_endpoint() const");

struct NoStart : Model {
  using Model::Model;
  void start() = delete;
};
NEAR_MISS(Transport, NoStart, "void start(TransportSetup)");

struct StartTells : Model {
  using Model::Model;
  bool start(TransportSetup);
};
NEAR_MISS(Transport, StartTells, "void start(TransportSetup)");

struct SendByReference : Model {
  using Model::Model;
  void async_send(WorkerId, Message&, SendCompletion);
};
NEAR_MISS(Transport, SendByReference, "void async_send(WorkerId, Message, SendCompletion)");

struct CompletionByReference : Model {
  using Model::Model;
  void async_send(WorkerId, Message, SendCompletion&);
};
NEAR_MISS(Transport, CompletionByReference, "void async_send(WorkerId, Message, SendCompletion)");

struct SendTells : Model {
  using Model::Model;
  error_code async_send(WorkerId, Message, SendCompletion);
};
NEAR_MISS(Transport, SendTells, "void async_send(WorkerId, Message, SendCompletion)");

struct RunsForADuration : Model {
  using Model::Model;
  std::size_t run_until(milliseconds);
};
NEAR_MISS(Transport, RunsForADuration, "std::size_t run_until(time_point)");

struct RunCountsNothing : Model {
  using Model::Model;
  void run_until(time_point);
};
NEAR_MISS(Transport, RunCountsNothing, "std::size_t run_until(time_point)");

struct WakeThrows : Model {
  using Model::Model;
  void wake();
};
NEAR_MISS(Transport, WakeThrows, "void wake() noexcept");

struct CloseThrows : Model {
  using Model::Model;
  void close();
};
NEAR_MISS(Transport, CloseThrows, "void close() noexcept");

}  // namespace near_transport
