// The hub's information about a repository.
#pragma once
#include "model/hub/choice.h"
#include "model/hub/http.h"
#include "model/hub/hub.h"

namespace tq {

// Returns the commit of its branch main, from /api/models/REPOSITORY/revision/main.
std::string find_commit(HttpClient& http, const std::string& repository, const HubOptions& options);

// Returns its files at that commit, from all pages of /api/models/REPOSITORY/tree/COMMIT. Names are the hub's, unchecked; sizes
// and object ids are checked. Both throw Error or DownloadStopped.
std::vector<HubFile> list_files(HttpClient& http, const std::string& repository, const std::string& commit,
                                const HubOptions& options);

} // namespace tq
