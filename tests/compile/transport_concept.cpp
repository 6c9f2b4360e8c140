#include <distgrad/transport/archetype.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/loopback_transport.hpp>
#include <distgrad/transport/tcp_transport.hpp>

#include <distgrad/rendezvous/archetype.hpp>
#include <distgrad/rendezvous/local_rendezvous.hpp>
#include <distgrad/rendezvous/static_rendezvous.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>

// Types that model the transport and rendezvous policies, and one near miss per requirement.
namespace {

using namespace distgrad;

static_assert(TransportPolicy<TransportArchetype>);
static_assert(TransportPolicy<LoopbackTransport>);
static_assert(TransportPolicy<TcpTransport>);
static_assert(!TransportPolicy<int>);

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
static_assert(TransportPolicy<Model>);

struct DerivedContract : transport_v1 {};
struct ForLaterContract : Model {
  using contract = DerivedContract;
  using Model::Model;
};
static_assert(TransportPolicy<ForLaterContract>);

struct OtherContract : Model {
  using contract = int;
  using Model::Model;
};
static_assert(!TransportPolicy<OtherContract>, "written for another contract");

struct NoOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoOptions(Options);
};
static_assert(!TransportPolicy<NoOptions>, "options need defaults");

struct NoConstructor : Model {
  NoConstructor();
};
static_assert(!TransportPolicy<NoConstructor>, "made from its options");

struct MutableEndpoint : Model {
  using Model::Model;
  std::string local_endpoint();
};
static_assert(!TransportPolicy<MutableEndpoint>, "the endpoint is asked of a const transport");

struct EndpointView : Model {
  using Model::Model;
  std::string_view local_endpoint() const;
};
static_assert(!TransportPolicy<EndpointView>, "the endpoint is a string of its own");

struct NoStart : Model {
  using Model::Model;
  void start() = delete;
};
static_assert(!TransportPolicy<NoStart>);

struct StartTells : Model {
  using Model::Model;
  bool start(TransportSetup);
};
static_assert(!TransportPolicy<StartTells>, "start reports by throwing");

struct SendByReference : Model {
  using Model::Model;
  void async_send(WorkerId, Message&, SendCompletion);
};
static_assert(!TransportPolicy<SendByReference>, "a message is handed over");

struct CompletionByReference : Model {
  using Model::Model;
  void async_send(WorkerId, Message, SendCompletion&);
};
static_assert(!TransportPolicy<CompletionByReference>, "a completion is handed over");

struct SendTells : Model {
  using Model::Model;
  error_code async_send(WorkerId, Message, SendCompletion);
};
static_assert(!TransportPolicy<SendTells>, "a send reports to its completion alone");

struct RunsForADuration : Model {
  using Model::Model;
  std::size_t run_until(milliseconds);
};
static_assert(!TransportPolicy<RunsForADuration>);

struct RunCountsNothing : Model {
  using Model::Model;
  void run_until(time_point);
};
static_assert(!TransportPolicy<RunCountsNothing>);

struct WakeThrows : Model {
  using Model::Model;
  void wake();
};
static_assert(!TransportPolicy<WakeThrows>, "wake is noexcept");

struct CloseThrows : Model {
  using Model::Model;
  void close();
};
static_assert(!TransportPolicy<CloseThrows>, "close is noexcept");

static_assert(RendezvousPolicy<RendezvousArchetype>);
static_assert(RendezvousPolicy<StaticRendezvous>);
static_assert(RendezvousPolicy<LocalRendezvous>);
static_assert(RendezvousPolicy<TcpRendezvous>);

struct RendezvousWithoutContract {
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline);
};
static_assert(!RendezvousPolicy<RendezvousWithoutContract>);

struct RendezvousWithoutDeadline {
  using contract = rendezvous_v1;
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t);
};
static_assert(!RendezvousPolicy<RendezvousWithoutDeadline>);

struct RendezvousOfNames {
  using contract = rendezvous_v1;
  std::vector<std::string> exchange(PeerAddress, std::uint32_t, Deadline);
};
static_assert(!RendezvousPolicy<RendezvousOfNames>);

}  // namespace
