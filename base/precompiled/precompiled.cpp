#include "base/precompiled/precompiled.h"
