#include "tools/tq-run/download.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "hub/hub.h"
#include "tools/tq-run/progress.h"
#include <cstdlib>

namespace tq {
namespace {

// While it lives, Ctrl-C only asks; then it ends the program again.
struct Watch {
    Watch() { catch_interrupts(); }
    ~Watch() {
        release_interrupts();
        clear_interrupt();
    }
};

} // namespace

std::filesystem::path download_model(const ModelSource& source, Console& console) {
    HubOptions options = hub_options([](const char* name) { return std::getenv(name); });
    options.offline |= source.offline;
    if (!source.token.empty()) options.token = source.token;
    TransferStatus status(console);
    options.progress = [&](const HubProgress& progress) {
        const std::string_view name = progress.file.substr(progress.file.rfind('/') + 1);
        if (progress.total > 0)
            status.update(fmt::format("downloading {}", printable(name, 60)), progress.done, progress.total, progress.received);
        return !interrupted();
    };
    options.note = [&](const std::string& text) {
        console.clear_status();
        write_error(fmt::format("tq-run: {}\n", text));
    };
    const Watch watch;
    return fetch_model({source.repository, source.repository_file}, options);
}

} // namespace tq
