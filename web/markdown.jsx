// Markdown as elements. Text reaches the page only as text nodes, never as HTML, and nothing is loaded from a link.
import { memo } from "./memo.js";
import { parseBlocks } from "./markdown_blocks.js";
import { parseInline } from "./markdown_inline.js";
import { CopyButton } from "./copy_button.jsx";

function Inline({ text }) {
  return <Spans spans={parseInline(text)} />;
}

function Spans({ spans }) {
  return spans.map((span) => (typeof span === "string" ? span : <Span span={span} />));
}

function Span({ span }) {
  switch (span.type) {
    case "break":
      return <br />;
    case "code":
      return <code>{span.text}</code>;
    case "link":
      return (
        <a href={span.href} target="_blank" rel="noopener noreferrer">
          <Spans spans={span.children} />
        </a>
      );
    default: {
      const Tag = span.type; // strong, em, del
      return (
        <Tag>
          <Spans spans={span.children} />
        </Tag>
      );
    }
  }
}

function Code({ language, text }) {
  return (
    <div class="code">
      <div class="code-head">
        <span>{language || "text"}</span>
        <CopyButton text={text} label="Copy code" />
      </div>
      <pre tabindex="0" role="region" aria-label={`${language || "text"} code`}>
        <code>{text}</code>
      </pre>
    </div>
  );
}

function List({ ordered, start, items }) {
  const Tag = ordered ? "ol" : "ul";
  return (
    <Tag start={ordered && start !== 1 ? start : undefined}>
      {items.map(({ checked, blocks }) => (
        <li class={checked === null ? undefined : "task"}>
          {checked !== null && <input type="checkbox" checked={checked} disabled aria-label={checked ? "done" : "to do"} />}
          <Blocks blocks={blocks} tight={blocks.length === 1 || blocks[1]?.type === "list"} />
        </li>
      ))}
    </Tag>
  );
}

function Table({ align, head, rows }) {
  return (
    <div class="table" tabindex="0" role="region" aria-label="table">
      <table>
        <thead>
          <tr>
            {head.map((cell, column) => (
              <th scope="col" class={align[column]}>
                <Inline text={cell} />
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell, column) => (
                <td class={align[column]}>
                  <Inline text={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Blocks({ blocks, tight }) {
  return blocks.map((block) => <Block block={block} tight={tight} />);
}

// While an answer streams only its last block changes; the others are drawn once.
const Block = memo(
  function Block({ block, tight }) {
    switch (block.type) {
      case "paragraph":
        return tight ? <Inline text={block.text} /> : <p><Inline text={block.text} /></p>;
      case "heading": {
        const Tag = `h${Math.min(block.level + 2, 6)}`; // the page has h1, a message h2
        return <Tag><Inline text={block.text} /></Tag>;
      }
      case "code":
        return <Code {...block} />;
      case "quote":
        return <blockquote><Blocks blocks={block.blocks} /></blockquote>;
      case "list":
        return <List {...block} />;
      case "table":
        return <Table {...block} />;
      case "rule":
        return <hr />;
    }
  },
  (a, b) => a.tight === b.tight && JSON.stringify(a.block) === JSON.stringify(b.block),
);

export const Markdown = memo(function Markdown({ text }) {
  return <Blocks blocks={parseBlocks(text)} />;
});
