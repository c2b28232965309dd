// A component that is drawn again only when its properties changed: by reference, or as `isSame` says.
import { Component, h } from "preact";

function isShallowSame(a, b) {
  for (const key in a) if (!(key in b)) return false;
  for (const key in b) if (a[key] !== b[key]) return false;
  return true;
}

export function memo(view, isSame = isShallowSame) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return !isSame(this.props, next);
    }
    render(props) {
      return h(view, props);
    }
  };
}
