"""Sets a feature flag's value and switches it on, as ClusterFuzz's operators do.

usage: set_flag.py NAME VALUE
"""

import sys

from models import FeatureFlag, context


def main():
    name, value = sys.argv[1], float(sys.argv[2])
    with context():
        flag = FeatureFlag.get_by_id(name) or FeatureFlag(id=name)
        before = flag.value if flag.enabled else None
        flag.enabled, flag.value = True, value
        flag.put()
    print(f"{name}: {before} -> {value}")


if __name__ == "__main__":
    main()
