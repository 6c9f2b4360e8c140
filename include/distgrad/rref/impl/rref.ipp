#pragma once
#include <distgrad/rref/rref.hpp>

namespace distgrad::detail {

DISTGRAD_DECL void encode_fork(Encoder& to, RRefHandle const& handle) {
  auto& table = handle.table();
  auto const& self = table.agent().membership().self();  // throws if the engine is gone
  if (to.services.find<RRefTable>() != &table) {
    throw Error(errc::invalid_argument,
                "an RRef of worker '" + self.name +
                    "' was given to another engine of this process; pass it through a call");
  }
  auto const data = table.share(handle, to.peer);
  if (to.if_undelivered) {
    to.if_undelivered->push_back(
        [table = table.shared_from_this(), data] { table->share_undelivered(data); });
  }
  to.writer.id(data.owner);
  to.writer.id(data.rref);
  to.writer.id(data.fork);
  to.writer.id(data.parent);
  to.writer.number(data.create);
}

DISTGRAD_DECL RRefHandlePtr decode_fork(Decoder& from) {
  ForkData data;
  data.owner = from.reader.id<WorkerId>();
  data.rref = from.reader.id<RRefId>();
  data.fork = from.reader.id<ForkId>();
  data.parent = from.reader.id<WorkerId>();
  data.create = from.reader.number<std::uint64_t>();
  require_ok(from);
  std::optional<Future<void>> confirmed;
  auto handle = from.services.find<RRefTable>()->receive(data, confirmed);
  if (confirmed) hold_for(from, *confirmed);
  return handle;
}

}  // namespace distgrad::detail
