#pragma once
#include <string>

#include <distgrad/config.hpp>
#include <distgrad/observe/observer.hpp>

namespace distgrad {

/// What `observer` has recorded so far, in Chrome's trace format, which https://ui.perfetto.dev and
/// chrome://tracing open: this worker as a process, its threads, calls and backward passes as spans
/// that nest, and arrows that begin where a message left and end where it arrived. Arrows to other
/// workers have their other ends in the files of those; `scripts/trace-merge` joins them.
///
/// Times are microseconds since the observer began, of this process's steady clock. Without
/// `Observer::trace` there are no events. @threads any.
/// @source "Trace Event Format", the document of the Chromium project.
DISTGRAD_DECL std::string chrome_trace(Observer const& observer);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/observe/impl/chrome_trace.ipp>
#endif
