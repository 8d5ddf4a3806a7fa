#include "model/text/grammar/interrupt.h"
#include <utility>

namespace tq::grammar {
namespace {

constexpr size_t calls_between_looks = 1024; // a look may be a system call

thread_local InterruptScope* innermost = nullptr;
thread_local size_t calls = 0;

} // namespace

InterruptScope::InterruptScope(std::function<bool()> is_over)
    : is_over_(std::move(is_over)), outer_(std::exchange(innermost, this)) {}

InterruptScope::~InterruptScope() { innermost = outer_; }

void look_at_interrupt(size_t work) {
    if (!innermost || (calls += work) < calls_between_looks) return;
    calls = 0;
    if (innermost->is_over_ && innermost->is_over_()) throw Interrupted();
}

} // namespace tq::grammar
