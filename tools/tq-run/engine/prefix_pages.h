// The owner of a prefix cache's pages, and the signer of pages for other machines.
#pragma once
#include "model/prefix/owner.h"
#include "model/prefix/page_signature.h"
#include <string>

namespace tq {

struct Engine;
struct PrefixArguments;

// The signer of pages for other machines, and its name.
struct PageKey {
    PageSigner sign; // empty: none
    std::string name = "none";
};
PageKey page_key(const PrefixArguments& arguments);
// Returns the owner of the engine's pages. fingerprint: of its model.
OwnerTexts prefix_owner(const Engine& engine, const std::string& fingerprint);

} // namespace tq
