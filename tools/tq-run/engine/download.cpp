// Downloads a model from the hub, and shows in one status line how it goes. The line has three states: progress; from 3 s on how
// long nothing has arrived; after an attempt failed, the hub's message about the next one, until bytes arrive again.
#include "tools/tq-run/engine/download.h"
#include "base/environment.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/hub/hub.h"
#include "tools/tq-run/cli/progress.h"
#include <chrono>
#include <utility>

namespace tq {
namespace {

// Ctrl-C only sets a flag while this object exists; afterwards it ends the program again.
struct Watch {
    Watch() { catch_interrupts(); }
    ~Watch() {
        release_interrupts();
        clear_interrupt();
    }
};

// Measures how long nothing has arrived.
class DownloadSilence {
  public:
    // Whole seconds; 0 while there are only a few.
    int64_t seconds(uint64_t received) {
        const auto now = std::chrono::steady_clock::now();
        if (std::exchange(received_, received) != received) since_ = now;
        const auto silent = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
        return silent < 3 ? 0 : silent;
    }

  private:
    uint64_t received_ = 0;
    std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

} // namespace

// Ctrl-C stops the download; the next one uses what has arrived.
std::filesystem::path download_model(const ModelSource& source, Console& console) {
    HubOptions options = hub_options(environment_variable);
    options.offline |= source.offline;
    if (!source.token.empty()) options.token = source.token;
    TransferStatus status(console);
    DownloadSilence silence;
    int64_t shown = 0; // seconds
    bool trying_again = false;
    uint64_t received = 0;
    options.progress = [&](const HubProgress& progress) {
        const std::string_view name = progress.file.substr(progress.file.rfind('/') + 1);
        const int64_t silent = silence.seconds(progress.received);
        if (std::exchange(received, progress.received) != progress.received) trying_again = false;
        if (trying_again) return !interrupted(); // which is shown
        if (silent > 0 && silent != shown)
            console.status(progress.total == 0 ? fmt::format("no answer from {} for {} s", printable(options.endpoint), silent)
                                               : fmt::format("downloading {}: {} %, stalled for {} s", printable(name, 60),
                                                             progress.done * 100 / progress.total, silent));
        else if (silent == 0 && progress.total > 0)
            status.update(fmt::format("downloading {}", printable(name, 60)), progress.done, progress.total, progress.received);
        shown = silent;
        return !interrupted();
    };
    options.status = [&](const std::string& text) {
        trying_again = true;
        console.status(text);
    };
    options.note = [&](const std::string& text) { console.say(text); };
    const Watch watch;
    return fetch_model({source.repository, source.repository_file}, options);
}

} // namespace tq
