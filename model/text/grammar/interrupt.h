// Schemas and grammars of clients may take long to compile: it is given up when nobody waits for them any more.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>

namespace tq::grammar {

// Not a tq::Error, because the grammar is not at fault.
struct Interrupted final : std::exception {
    const char* what() const noexcept override { return "it was given up, since nobody waits for it"; }
};

// While it lives, compilation in this thread ends with Interrupted once `is_over` returns true; it is asked now and then.
class InterruptScope {
  public:
    explicit InterruptScope(std::function<bool()> is_over);
    ~InterruptScope();
    InterruptScope(const InterruptScope&) = delete;
    InterruptScope& operator=(const InterruptScope&) = delete;

  private:
    friend void look_at_interrupt(size_t work);
    const std::function<bool()> is_over_;
    InterruptScope* const outer_;
};

void look_at_interrupt(size_t work = 1); // often; `work`: as many times

} // namespace tq::grammar
