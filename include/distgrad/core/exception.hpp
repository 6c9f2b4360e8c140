#pragma once
#include <exception>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>

namespace distgrad {

/// Describes `error`; an exception of a foreign type becomes `fallback` with its `what()`.
DISTGRAD_DECL ErrorReport describe(std::exception_ptr const& error,
                                   errc fallback = errc::remote_exception) noexcept;

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/core/impl/exception.ipp>
#endif
