// The engine uses nothing of its policies but what their concepts promise: it compiles with types
// that have exactly that.
#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/queue/archetype.hpp>
#include <distgrad/serialize/archetype.hpp>
#include <distgrad/transport/archetype.hpp>

template class distgrad::DistEngine<distgrad::TransportArchetype, distgrad::QueueArchetype,
                                    distgrad::SerializerArchetype>;
