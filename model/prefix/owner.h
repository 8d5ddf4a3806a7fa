// Identifies the owner of a cache's bytes: a model, the way its cache is stored, and the computation.
#pragma once
#include "model/config.h"
#include "model/kv/options.h"
#include "model/kv/page_layout.h"
#include "model/prefix/page_name.h"
#include <map>
#include <string>

namespace tq {

struct CacheOwner {
    Config config;
    KvOptions kv;            // includes the content of its calibration
    std::string fingerprint; // model_fingerprint(), or another text that tells models apart
    std::string model;       // its name, for people
    std::string computation; // the program and Forward::computation()
};

// The texts that identify the owner, and the model's name:
//   fingerprint
//   rope                the scaling of positions: "none x1 of 40960, attn 1, beta 32 1, theta 1000000"
//   types               of each layer, keys/values: "tq4/tq4 tq4/tq4 q8_0/f16"
//   rotation, scale_rule   by their names, for the types that have them
// conditioning of keys none, norms, weights (the kind that norms means in models whose heads have none) or measured, with
// "+values"
// if values have their channels scaled, by layer if these differ ("norms+values none"); measured is
//                       followed by the checksum of a calibration's scales and means, one after the other
// shape layers, kv heads, head_dim; with_head if the head for multi-token prediction has its layer, too
//   computation
//   model               its name, for people
using OwnerTexts = std::map<std::string, std::string>;
inline const std::string with_head = " mtp";
OwnerTexts owner_texts(const CacheOwner& owner);
// The same for the prefix cache, which promises bits: also with window, KvOptions::window, if that is not 0.
OwnerTexts prefix_owner_texts(const CacheOwner& owner);

// Returns the name of all these texts but the model's name, in this version of the format of pages.
PageName owner_name(const OwnerTexts& texts);

PageLayout page_layout(const Config& config, const KvOptions& kv);

} // namespace tq
