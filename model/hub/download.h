// One file from the hub to its blob in the cache.
#pragma once
#include "model/hub/cache.h"
#include "model/hub/http.h"
#include "model/hub/hub.h"

namespace tq {

// The files of one model on their way.
struct Download {
    HttpClient& http;
    const HubCache& cache;
    const HubOptions& options;
    std::string repository, commit;
    HubProgress progress; // of all files

    // Continues what an earlier download left, and leaves what has arrived when it fails; only bytes with the right checksum
    // become the blob. Waits while another process fetches the same file. Throws Error or DownloadStopped.
    void fetch(const HubFile& file);
};

} // namespace tq
