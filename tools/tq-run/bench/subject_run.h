// One model on one device: what the tests of bench and those of bench -np have in common.
#pragma once
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/bench/schedule.h"
#include "tools/tq-run/console.h"

namespace tq::bench {

class SubjectRun {
  public:
    // All arguments outlive it.
    SubjectRun(const Arguments& arguments, Subject& subject, Console& console, Schedule& schedule);
    virtual ~SubjectRun() = default;

    // Runs the tests with every cache, batch size and number of threads. Returns whether everything could be measured; throws
    // LoadStopped on Ctrl-C.
    bool all();

  protected:
    // Leaves out tests that do not fit the memory with this cache, and reports them. Returns whether any are left.
    virtual bool choose_tests(const KvOptions& kv) = 0;
    virtual void measure(ForwardOptions options, const std::optional<Check>& check) = 0;

    std::unique_ptr<Forward> make_forward(const Config& config, const Weights& weights, ForwardOptions options);
    void report(const std::string& what);   // as status
    void warn(const std::string& what);     // on a line of its own
    void complain(const std::string& what); // that a requested test is not measured
    void wait();                            // as --delay requests

    const Arguments& arguments_;
    const Subject& subject_;
    Setup& setup_;
    Console& console_;
    Schedule& schedule_;

  private:
    std::optional<Check> check(const KvOptions& kv);
    uint32_t usual_batch() const;

    Checker checker_;
    bool good_ = true;
};

// Opens each model on each device and calls `run`, which returns whether everything could be measured; then `finish`, also on
// Ctrl-C and before an error is thrown. Returns the exit status.
int run_subjects(const Arguments& arguments, Console& console, const std::function<bool(Subject&)>& run,
                 const std::function<void()>& finish);

} // namespace tq::bench
