#pragma once

/// Version of the library, major * 10000 + minor * 100 + patch.
#define DISTGRAD_VERSION 100

namespace distgrad {

/// Version of the wire protocol. Workers of different protocol versions refuse each other.
inline constexpr unsigned short protocol_version = 1;

}  // namespace distgrad
