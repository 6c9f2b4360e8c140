#pragma once
// Every macro the library reads. Nothing else in the tree tests a macro, apart from
// tensor/compat.hpp, which asks libtorch for its version.

/// DISTGRAD_SEPARATE_COMPILATION (default: not defined). When defined in a whole program, headers
/// only declare what is no template, and the default engines; exactly one source file includes
/// <distgrad/src.hpp>, which defines both. The CMake target `distgrad::src` does all of it.
#if defined(DISTGRAD_SEPARATE_COMPILATION)
#define DISTGRAD_DECL
#define DISTGRAD_EXTERN_TEMPLATE(...) extern template __VA_ARGS__
#else
#define DISTGRAD_DECL inline
#define DISTGRAD_EXTERN_TEMPLATE(...) static_assert(true)
#endif

// Exceptions: the core, the wire, transports, rendezvous and raw workers compile without them
// (-fno-exceptions), where what would be thrown is written to stderr and ends the program. Set by
// the compiler, not by the user.
#if defined(__cpp_exceptions)
#define DISTGRAD_THROW(...) throw __VA_ARGS__
#define DISTGRAD_TRY try
#define DISTGRAD_CATCH(...) catch (__VA_ARGS__)
#else
#define DISTGRAD_THROW(...) ::boost::throw_exception(__VA_ARGS__)
#define DISTGRAD_TRY if constexpr (true)
#define DISTGRAD_CATCH(...) if constexpr (false)
#define DISTGRAD_WITHOUT_EXCEPTIONS
#endif

// Bounds, for programs that must know their memory. Each is a number that has to be the same in
// the whole program; 0, the default, means that there is none. Who asks for more gets
// errc::limit_reached (frames: errc::frame_too_large), and the text names the macro; what is there
// already is not touched. docs/embedded.md says what a bound costs and saves.

/// DISTGRAD_MAX_PEERS (default: 0). Other workers in the group; an engine of a larger group is not
/// made.
#if !defined(DISTGRAD_MAX_PEERS)
#define DISTGRAD_MAX_PEERS 0
#endif

/// DISTGRAD_MAX_FRAME_BYTES (default: 0). The most that a frame may have of metadata, and of
/// payload: the largest that EngineOptions::limits can be, and their default. It also bounds the
/// input buffer of each connection.
#if !defined(DISTGRAD_MAX_FRAME_BYTES)
#define DISTGRAD_MAX_FRAME_BYTES 0
#endif

/// DISTGRAD_MAX_CALLS (default: 0). Calls this worker has made that are not answered yet; as many,
/// counted for themselves, are served for others. One more is declined.
#if !defined(DISTGRAD_MAX_CALLS)
#define DISTGRAD_MAX_CALLS 0
#endif

/// DISTGRAD_MAX_UNSENT_BYTES (default: 0). Bytes of calls and answers that no network has taken
/// yet. No call is begun, and none is served, while there are as many.
#if !defined(DISTGRAD_MAX_UNSENT_BYTES)
#define DISTGRAD_MAX_UNSENT_BYTES 0
#endif

/// DISTGRAD_MAX_CONTEXTS (default: 0). Distributed autograd contexts this worker has a part of. Of
/// released ones it remembers 16 times as many, instead of 65536.
#if !defined(DISTGRAD_MAX_CONTEXTS)
#define DISTGRAD_MAX_CONTEXTS 0
#endif

/// DISTGRAD_MAX_PASSES (default: 0). Backward passes that run at the same time with a part here.
#if !defined(DISTGRAD_MAX_PASSES)
#define DISTGRAD_MAX_PASSES 0
#endif

/// DISTGRAD_MAX_RREFS (default: 0). Remote values this worker owns, plus references to values
/// elsewhere. References that come with an answer count, but are let in.
#if !defined(DISTGRAD_MAX_RREFS)
#define DISTGRAD_MAX_RREFS 0
#endif
