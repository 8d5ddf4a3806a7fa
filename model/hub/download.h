// Downloads one file from the hub to its blob in the cache.
#pragma once
#include "model/hub/http.h"
#include "model/hub/hub.h"
#include "model/hub/hub_cache.h"

namespace tq {

// The download of one model's files.
struct Download {
    HttpClient& http;
    const HubCache& cache;
    const HubOptions& options;
    std::string repository, commit;
    HubProgress progress; // of all files

    // Continues an interrupted download, and keeps the received bytes when it fails; only bytes with the right checksum become
    // the blob. Waits while another process downloads the same file. Throws Error or DownloadStopped.
    void fetch(const HubFile& file);
};

} // namespace tq
