// Does not compile, on purpose: see near_miss.hpp.
#include "transport.hpp"

#include "rendezvous.hpp"

#include "queue.hpp"

#include "serializer.hpp"
